#!lua flags=no-writes
-- Look at held messages of one queue, the longest without a renewal first.
-- KEYS  unacked, index
-- ARGV  job key prefix, first, last (ranks)
-- Returns for each message: tag, list, task id, bytes, when its lease was last renewed, job state ('' = none)
local found = {}
local range = redis.call('ZRANGE', KEYS[2], ARGV[2], ARGV[3], 'WITHSCORES')
for n = 1, #range, 2 do
  local tag, renewed_at = range[n], range[n + 1]
  local list, id, message = string.match(redis.call('HGET', KEYS[1], tag) or '', '^([^\n]*)\n([^\n]*)\n(.*)$')
  if list then
    found[#found + 1] = {tag, list, id, #message, renewed_at, redis.call('GET', ARGV[1] .. id) or ''}
  end
end
return found
