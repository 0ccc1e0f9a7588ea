-- Take up to a number of messages from the queues' lists and hold each under a claim, atomically.
-- KEYS  cancelled, then for each queue: unacked, index, then inbox and list of each priority, the most urgent first
-- ARGV  claim, messages to take, bytes to take, job key prefix, result key prefix, job ttl, result ttl,
--       if woken (1 = take nothing unless an inbox holds something), queue names ...
-- Returns for each message: queue, tag, task id, crashes, message
-- What is dropped (doubled, cancelled) counts as none, up to a limit: a worker that got fewer than it asked for waits at
-- its lists, and would not see what was left in its inboxes.
local DROPPED_AT_ONCE = 1000
local claim, left, bytes_left = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local job_prefix, result_prefix, job_ttl, result_ttl = ARGV[4], ARGV[5], ARGV[6], tonumber(ARGV[7])
local if_woken, QUEUES_FROM = ARGV[8] == '1', 8
local queues = #ARGV - QUEUES_FROM
local KEYS_PER_QUEUE = (#KEYS - 1) / queues
local LISTS = (KEYS_PER_QUEUE - 2) / 2

local function is_woken()
  local inboxes = {}
  for base = 1, #KEYS - KEYS_PER_QUEUE, KEYS_PER_QUEUE do
    for priority = 1, LISTS do inboxes[#inboxes + 1] = KEYS[base + 1 + 2 * priority] end
  end
  return redis.call('EXISTS', unpack(inboxes)) > 0
end

if if_woken and not is_woken() then return {} end
local time = redis.call('TIME')
local now = string.format('%d.%06d', time[1], time[2])
local cancelled_any = redis.call('EXISTS', KEYS[1]) == 1
local taken = {}

local nameless, drops_left = 0, DROPPED_AT_ONCE

-- The envelope's end names tag and task id, whatever the size of the body; odd producers get a full parse. An entry that
-- cannot be parsed here is held like any other: the worker reads it, refuses it or puts it aside.
local function identify(message)
  local tail = #message > 2048 and string.sub(message, -2048) or message
  local tag = string.match(tail, '.*"delivery_tag": ?"([^"]*)"')
  local id = string.match(tail, '.*"correlation_id": ?"([^"]*)"')
  if tag and id and tag ~= '' and id ~= '' and not string.find(tag, '[%s\\\128-\255]') and not string.find(id, '\\', 1, true) then
    return tag, id
  end
  local ok, envelope = pcall(cjson.decode, message)
  local function part(name) return ok and type(envelope) == 'table' and type(envelope[name]) == 'table' and envelope[name] or {} end
  local function text(value, unwanted)
    return type(value) == 'string' and value ~= '' and not string.find(value, unwanted) and value or nil
  end
  nameless = nameless + 1
  tag = text(part('properties').delivery_tag, '[%s\128-\255]') or redis.sha1hex(claim .. nameless .. message)
  return tag, text(part('headers').id, '\n') or text(part('properties').correlation_id, '\n') or tag
end

local function is_duplicate(state, tag)
  if not state then return false end
  if state == 'D' then return true end
  local heir = string.match(state, '^R (%S+) %d+$')
  if heir then return heir ~= tag end
  local queue, held_tag = string.match(state, '^H %S+ (%S+) (%S+) %d+$')
  return queue and redis.call('HEXISTS', 'batchmill:unacked:' .. queue, held_tag) == 1
end

local function is_held(tag)
  for base = 1, #KEYS - KEYS_PER_QUEUE, KEYS_PER_QUEUE do
    if redis.call('HEXISTS', KEYS[base + 1], tag) == 1 then return true end
  end
  return false
end

local function revoke(id)
  local key = result_prefix .. id
  local value = cjson.encode({status = 'REVOKED', task_id = id, traceback = cjson.null, children = cjson.null,
    result = {exc_type = 'TaskRevokedError', exc_message = {'cancelled'}, exc_module = 'celery.exceptions'}})
  redis.call('SET', key, value, 'EX', result_ttl)
  redis.call('PUBLISH', key, value)
  redis.call('SET', job_prefix .. id, 'D', 'EX', job_ttl)
end

local function hold(message, list, queue, unacked, index)
  local tag, id = identify(message)
  local state = redis.call('GET', job_prefix .. id)
  if is_duplicate(state, tag) then return false end
  if cancelled_any and redis.call('ZSCORE', KEYS[1], id) then
    revoke(id)
    return false
  end
  -- Another message under the same tag, as if copied by hand: only the tag is changed, and only here.
  if is_held(tag) then tag = redis.sha1hex(message) end
  local crashes = state and tonumber(string.match(state, '(%d+)$')) or 0
  redis.call('SET', job_prefix .. id, 'H ' .. claim .. ' ' .. queue .. ' ' .. tag .. ' ' .. crashes, 'EX', job_ttl)
  redis.call('HSET', unacked, tag, list .. '\n' .. id .. '\n' .. message)
  redis.call('ZADD', index, now, tag)
  taken[#taken + 1] = {queue, tag, id, crashes, message}
  return true
end

local function take(queue_number, priority, most)
  local base = 1 + (queue_number - 1) * KEYS_PER_QUEUE
  local list = KEYS[base + 2 + 2 * priority]
  for _, source in ipairs({KEYS[base + 1 + 2 * priority], list}) do
    while most > 0 and left > 0 and bytes_left > 0 and drops_left > 0 do
      local message = redis.call('RPOP', source)
      if not message then break end
      bytes_left = bytes_left - #message
      if hold(message, list, ARGV[QUEUES_FROM + queue_number], KEYS[base + 1], KEYS[base + 2]) then
        most, left = most - 1, left - 1
      else
        drops_left = drops_left - 1
      end
    end
  end
end

for priority = 1, LISTS do
  local share = math.ceil(left / queues)
  for queue_number = 1, queues do take(queue_number, priority, share) end
  for queue_number = 1, queues do take(queue_number, priority, left) end
end
return taken
