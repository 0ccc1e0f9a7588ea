#!lua flags=allow-oom
-- Delete results, and with them the memory that their jobs have ended: the ids are new again.
-- KEYS  of results
-- ARGV  job key prefix, result key prefix
-- Returns how many results were deleted
local deleted = 0
for _, key in ipairs(KEYS) do
  deleted = deleted + redis.call('UNLINK', key)
  local job = ARGV[1] .. string.sub(key, #ARGV[2] + 1)
  if redis.call('GET', job) == 'D' then redis.call('DEL', job) end
end
return deleted
