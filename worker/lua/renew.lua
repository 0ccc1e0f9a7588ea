#!lua flags=allow-oom
-- Renew the leases of held messages whose claims still hold, and that of the worker itself.
-- KEYS  workers, then for each queue: index
-- ARGV  worker, job key prefix, job ttl, then for each message: queue number, tag, task id, claim
-- Returns the tags whose claims are lost
local time = redis.call('TIME')
local now = string.format('%d.%06d', time[1], time[2])
redis.call('ZADD', KEYS[1], now, ARGV[1])
local lost = {}
for position = 4, #ARGV, 4 do
  local queue, tag, id, claim = tonumber(ARGV[position]), ARGV[position + 1], ARGV[position + 2], ARGV[position + 3]
  local job = ARGV[2] .. id
  local state = redis.call('GET', job)
  if state and string.sub(state, 1, #claim + 3) == 'H ' .. claim .. ' ' then
    redis.call('ZADD', KEYS[1 + queue], 'XX', now, tag)
    redis.call('EXPIRE', job, ARGV[3])
  else
    lost[#lost + 1] = tag
  end
end
return lost
