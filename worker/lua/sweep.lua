#!lua flags=allow-oom
-- Give back what a queue's dead workers held, or what one named worker's former life held.
-- A message that was in inference when its worker died is blamed; at the cap it goes to the dead letters.
-- KEYS  unacked, index, workers, running, dead, dead index
-- ARGV  job key prefix, result key prefix, job ttl, result ttl, lease seconds, limit, cap (0 = blame nobody),
--       queue, former life ('' = by lease)
-- Returns: given back, dead-lettered, blamed
local job_prefix, result_prefix, job_ttl, result_ttl = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
local lease, limit, cap, queue, former = tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7]), ARGV[8], ARGV[9]
local DEAD_KEPT = 10000
local time = redis.call('TIME')
local now = time[1] + time[2] / 1000000
local due
if former == '' then
  due = redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', string.format('%.6f', now - lease), 'LIMIT', 0, limit)
else
  due = redis.call('ZRANGE', KEYS[2], 0, -1)
end
if #due == 0 then return {0, 0, 0} end

local running = {}  -- incarnation .. ' ' .. tag
local marks = redis.call('HGETALL', KEYS[4])
for n = 1, #marks, 2 do
  local incarnation = string.match(marks[n], '^(.*):[^:]*$')
  for tag in string.gmatch(marks[n + 1], '%S+') do running[incarnation .. ' ' .. tag] = true end
end

local function bury(tag, id, list, message, crashes, worker)
  local text = 'dead_lettered: its worker died ' .. crashes .. ' times while it ran; see `batchmill dead show ' .. id .. '`'
  redis.call('HSET', KEYS[5], id, cjson.encode({task_id = id, queue = queue, list = list, reason = 'worker_died',
    crashes = crashes, worker = worker, at = now, message = message}))
  redis.call('ZADD', KEYS[6], now, id)
  for _, oldest in ipairs(redis.call('ZRANGE', KEYS[6], 0, -(DEAD_KEPT + 1))) do
    redis.call('HDEL', KEYS[5], oldest)
    redis.call('ZREM', KEYS[6], oldest)
  end
  local value = cjson.encode({status = 'FAILURE', task_id = id, traceback = cjson.null, children = cjson.null,
    result = {exc_type = 'MessageError', exc_message = {text}, exc_module = 'schemas.errors'}})
  redis.call('SET', result_prefix .. id, value, 'EX', result_ttl)
  redis.call('PUBLISH', result_prefix .. id, value)
  redis.call('SET', job_prefix .. id, 'D', 'EX', job_ttl)
end

local back, dead, blamed = 0, 0, 0
for _, tag in ipairs(due) do
  local held = redis.call('HGET', KEYS[1], tag)
  local list, id, message = string.match(held or '', '^([^\n]*)\n([^\n]*)\n(.*)$')
  local state = id and redis.call('GET', job_prefix .. id) or nil
  local claim, crashes = string.match(state or '', '^H (%S+) %S+ %S+ (%d+)$')
  local incarnation = claim and string.match(claim, '^(.*):[^:]*$') or ''
  if former == '' or incarnation == former then
    redis.call('ZREM', KEYS[2], tag)
    redis.call('HDEL', KEYS[1], tag)
    if held then
      crashes = tonumber(crashes or 0)
      if cap > 0 and running[incarnation .. ' ' .. tag] then crashes, blamed = crashes + 1, blamed + 1 end
      if cap > 0 and crashes >= cap then
        bury(tag, id, list, message, crashes, incarnation)
        dead = dead + 1
      else
        redis.call('RPUSH', list, message)
        redis.call('SET', job_prefix .. id, 'F ' .. crashes, 'EX', job_ttl)
        back = back + 1
      end
    end
  end
end
return {back, dead, blamed}
