#!lua flags=allow-oom
-- Clean up after workers whose lease has ended: their inboxes go back to the queues, their marks and names go.
-- KEYS  workers, running, inboxes, cancelled
-- ARGV  lease seconds, former life ('' = by lease)
-- Returns how many messages went back
local time = redis.call('TIME')
local now = time[1] + time[2] / 1000000
local function silent_for(seconds)
  if ARGV[2] ~= '' then return {ARGV[2]} end
  return redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', string.format('%.6f', now - seconds))
end

local back = 0
for _, worker in ipairs(silent_for(tonumber(ARGV[1]))) do
  for list in string.gmatch(redis.call('HGET', KEYS[3], worker) or '', '[^\n]+') do
    while redis.call('LMOVE', 'batchmill:inbox:' .. worker .. ':' .. list, list, 'LEFT', 'RIGHT') do back = back + 1 end
  end
end
-- A message that was taken just before the worker's last sign of life is swept a little later than the worker itself:
-- the marks that blame need stay for three leases.
for _, worker in ipairs(silent_for(3 * tonumber(ARGV[1]))) do
  redis.call('HDEL', KEYS[3], worker)
  redis.call('ZREM', KEYS[1], worker)
end
redis.call('ZREMRANGEBYSCORE', KEYS[4], '-inf', string.format('%.6f', now))
local alive = {}
for _, worker in ipairs(redis.call('ZRANGE', KEYS[1], 0, -1)) do alive[worker] = true end
for _, field in ipairs(redis.call('HKEYS', KEYS[2])) do
  if not alive[string.match(field, '^(.*):[^:]*$')] then redis.call('HDEL', KEYS[2], field) end
end
for _, said in ipairs({'batchmill:rates', 'batchmill:loads'}) do
  for _, worker in ipairs(redis.call('HKEYS', said)) do
    if not alive[worker] then redis.call('HDEL', said, worker) end
  end
end
return back
