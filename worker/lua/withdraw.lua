#!lua flags=allow-oom
-- Remove messages from one list for good; a job that has no other end ends as revoked.
-- KEYS  list
-- ARGV  job key prefix, result key prefix, job ttl, result ttl, then for each message: task id ('' = none), message
-- Returns how many entries were removed
local job_prefix, result_prefix, job_ttl, result_ttl = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local removed = 0

local function revoke(id)
  local value = cjson.encode({status = 'REVOKED', task_id = id, traceback = cjson.null, children = cjson.null,
    result = {exc_type = 'TaskRevokedError', exc_message = {'purged'}, exc_module = 'celery.exceptions'}})
  redis.call('SET', result_prefix .. id, value, 'EX', result_ttl)
  redis.call('PUBLISH', result_prefix .. id, value)
  redis.call('SET', job_prefix .. id, 'D', 'EX', job_ttl)
end

for position = 5, #ARGV, 2 do
  local id, message = ARGV[position], ARGV[position + 1]
  local count = redis.call('LREM', KEYS[1], 0, message)
  removed = removed + count
  if count > 0 and id ~= '' then
    local state = redis.call('GET', job_prefix .. id)
    if not state or string.find(state, '^[FR] ') then revoke(id) end
  end
end
return removed
