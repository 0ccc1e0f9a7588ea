#!lua flags=no-writes
-- Look at dead letters of one queue, the newest first, without their messages.
-- KEYS  dead, dead index
-- ARGV  first, last (ranks)
-- Returns for each: its JSON record, in which the message is replaced by its bytes
local found = {}
for _, id in ipairs(redis.call('ZREVRANGE', KEYS[2], ARGV[1], ARGV[2])) do
  local record = cjson.decode(redis.call('HGET', KEYS[1], id) or '{}')
  if record.message then
    record.message_bytes = #record.message
    record.message = nil
    found[#found + 1] = cjson.encode(record)
  end
end
return found
