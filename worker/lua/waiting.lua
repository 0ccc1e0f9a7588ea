#!lua flags=no-writes
-- Look at messages of one list, where they are, by what their envelope's end says.
-- KEYS  list
-- ARGV  first, last (indices as LRANGE has them; -1 = the next to be served), task id wanted ('' = any)
-- Returns for each message: task id, task, when it was enqueued, bytes, message (only of the wanted task id)
local TAIL_BYTES = 16384
local found = {}
for _, message in ipairs(redis.call('LRANGE', KEYS[1], ARGV[1], ARGV[2])) do
  local tail = string.sub(message, -TAIL_BYTES)
  local id = string.match(tail, '.*"correlation_id": ?"([^"]*)"') or string.match(tail, '"id": ?"([^"]*)"') or ''
  if ARGV[3] == '' or ARGV[3] == id then
    local task = string.match(tail, '"task": ?"([^"]*)"') or ''
    local enqueued_at = string.match(tail, '"enqueued_at": ?([%d.eE+]+)') or ''
    found[#found + 1] = {id, task, enqueued_at, #message, ARGV[3] == '' and '' or message}
  end
end
return found
