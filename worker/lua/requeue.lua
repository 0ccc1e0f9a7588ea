#!lua flags=allow-oom
-- Put dead letters back to the end of the lists that they came from, as if they had never run.
-- KEYS  dead, dead index
-- ARGV  job key prefix, result key prefix, then task ids ...
-- Returns for each: 1 = put back, 0 = there is no such letter, 2 = a message of that id is held, 3 = one has succeeded
local answers = {}
for n = 3, #ARGV do
  local id = ARGV[n]
  local job, result = ARGV[1] .. id, ARGV[2] .. id
  local letter = redis.call('HGET', KEYS[1], id)
  local _, meta = pcall(cjson.decode, redis.call('GET', result) or '{}')
  if not letter then
    answers[#answers + 1] = 0
  elseif string.sub(redis.call('GET', job) or '', 1, 1) == 'H' then
    answers[#answers + 1] = 2
  elseif type(meta) == 'table' and meta.status == 'SUCCESS' then
    answers[#answers + 1] = 3
  else
    local record = cjson.decode(letter)
    redis.call('LPUSH', record.list, record.message)
    redis.call('DEL', job, result)
    redis.call('HDEL', KEYS[1], id)
    redis.call('ZREM', KEYS[2], id)
    answers[#answers + 1] = 1
  end
end
return answers
