#!lua flags=no-writes
-- Look at messages of one list, where they are, by what their envelope's end says.
-- KEYS  list
-- ARGV  first, last (indices as LRANGE has them; -1 = the next to be served), task id wanted ('' = any)
-- Returns for each message: task id, task, when it was enqueued ('' = no date), bytes, message (only of the wanted id)
local TAIL_BYTES = 16384
local IMPLAUSIBLE_UNIX_S = 1e11  -- no date, but the milliseconds of one
local found = {}
for _, message in ipairs(redis.call('LRANGE', KEYS[1], ARGV[1], ARGV[2])) do
  local tail = string.sub(message, -TAIL_BYTES)
  local id = string.match(tail, '.*"correlation_id": ?"([^"]*)"') or string.match(tail, '"id": ?"([^"]*)"') or ''
  if ARGV[3] == '' or ARGV[3] == id then
    local task = string.match(tail, '"task": ?"([^"]*)"') or ''
    local enqueued_at = string.match(tail, '"enqueued_at": ?([%d.eE+-]+)') or ''
    local enqueued_s = tonumber(enqueued_at)
    if not (enqueued_s and enqueued_s >= 0 and enqueued_s < IMPLAUSIBLE_UNIX_S) then enqueued_at = '' end
    found[#found + 1] = {id, task, enqueued_at, #message, ARGV[3] == '' and '' or message}
  end
end
return found
