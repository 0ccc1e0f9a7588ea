#!lua flags=no-writes
-- Find the strings that hold one of some texts.
-- KEYS  of strings
-- ARGV  texts
-- Returns the positions of those keys
local found = {}
for position, key in ipairs(KEYS) do
  local value = redis.call('GET', key)
  for _, text in ipairs(ARGV) do
    if value and string.find(value, text, 1, true) then
      found[#found + 1] = position
      break
    end
  end
end
return found
