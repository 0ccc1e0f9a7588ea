#!lua flags=allow-oom
-- Let go of held messages, if their claims still hold: done with them, or back to the front of their lists.
-- KEYS  for each queue: unacked, index
-- ARGV  job key prefix, job ttl, 'done' or 'back', then for each message: queue number, tag, task id, claim
-- Returns how many were let go
local job_prefix, job_ttl, back = ARGV[1], ARGV[2], ARGV[3] == 'back'
local released = 0
for position = 4, #ARGV, 4 do
  local queue, tag, id, claim = tonumber(ARGV[position]), ARGV[position + 1], ARGV[position + 2], ARGV[position + 3]
  local unacked, index = KEYS[2 * queue - 1], KEYS[2 * queue]
  local state = redis.call('GET', job_prefix .. id)
  if not state or string.sub(state, 1, #claim + 3) == 'H ' .. claim .. ' ' then
    local held = redis.call('HGET', unacked, tag)
    redis.call('HDEL', unacked, tag)
    redis.call('ZREM', index, tag)
    if not back then
      redis.call('SET', job_prefix .. id, 'D', 'EX', job_ttl)
    elseif held then
      local list, message = string.match(held, '^([^\n]*)\n[^\n]*\n(.*)$')
      redis.call('RPUSH', list, message)
      redis.call('SET', job_prefix .. id, 'F ' .. (state and string.match(state, '(%d+)$') or '0'), 'EX', job_ttl)
    end
    released = released + 1
  end
end
return released
