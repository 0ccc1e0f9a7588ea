#!lua flags=allow-oom
-- Renew the leases of held messages whose claims still hold, and that of the worker itself. It may have been forgotten
-- while it was frozen, so it announces its inboxes each time.
-- KEYS  workers, inboxes, service rates, loads, then for each queue: index
-- ARGV  worker, the lists that it waits on (one a line), job key prefix, job ttl,
--       how busy it was lately ('' = nothing to say),
--       how many arguments follow of rates: queue, messages a second ...,
--       then for each message: queue number, tag, task id, claim
-- Returns the tags whose claims are lost
-- The rate of a queue is shared by all its workers: each moves it a part of the way towards its own.
local SHARE = 0.2
local time = redis.call('TIME')
local now = string.format('%d.%06d', time[1], time[2])
redis.call('ZADD', KEYS[1], now, ARGV[1])
redis.call('HSET', KEYS[2], ARGV[1], ARGV[2])
if ARGV[5] ~= '' then redis.call('HSET', KEYS[4], ARGV[1], ARGV[5]) end
local messages_from = 7 + tonumber(ARGV[6])
for position = 7, messages_from - 1, 2 do
  local rate = tonumber(ARGV[position + 1])
  local before = tonumber(redis.call('HGET', KEYS[3], ARGV[position]) or '')
  if before then rate = before + SHARE * (rate - before) end
  redis.call('HSET', KEYS[3], ARGV[position], string.format('%.6g', rate))
end
local lost = {}
for position = messages_from, #ARGV, 4 do
  local queue, tag, id, claim = tonumber(ARGV[position]), ARGV[position + 1], ARGV[position + 2], ARGV[position + 3]
  local job = ARGV[3] .. id
  local state = redis.call('GET', job)
  if state and string.sub(state, 1, #claim + 3) == 'H ' .. claim .. ' ' then
    redis.call('ZADD', KEYS[4 + queue], 'XX', now, tag)
    redis.call('EXPIRE', job, ARGV[4])
  else
    lost[#lost + 1] = tag
  end
end
return lost
