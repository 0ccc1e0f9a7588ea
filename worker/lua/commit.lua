#!lua flags=allow-oom
-- Record what a group of jobs came to, if their claims still hold: results, published messages and the end of the
-- message, all in one step. Frees memory, so it may run on a full server.
-- KEYS  cancelled, then for each queue: unacked, index
-- ARGV  job key prefix, result key prefix, job ttl, result ttl, then for each job:
--       queue number, tag, task id, claim, results, messages, republished (1 = one of the messages carries this task id),
--       then per result: key, value, ttl (0 = none), then per message: list, message
-- Returns for each job: 1 = recorded, 0 = fenced off, 2 = cancelled
local job_prefix, result_prefix, job_ttl, result_ttl = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
local cancelled_any = redis.call('EXISTS', KEYS[1]) == 1
local position = 5
local answers = {}

local function next_argument()
  position = position + 1
  return ARGV[position - 1]
end

local function store(key, value, ttl)
  if ttl > 0 then redis.call('SET', key, value, 'EX', ttl) else redis.call('SET', key, value) end
  redis.call('PUBLISH', key, value)
end

local function revoked(id)
  return cjson.encode({status = 'REVOKED', task_id = id, traceback = cjson.null, children = cjson.null,
    result = {exc_type = 'TaskRevokedError', exc_message = {'cancelled'}, exc_module = 'celery.exceptions'}})
end

-- The delivery tag of a message that carries this task id: of the job's own heir, and of none that was sent again.
local function tag_of(message, id)
  local tail = string.sub(message, -2048)
  if not string.find(tail, '"correlation_id": "' .. id .. '"', 1, true) then return nil end
  return string.match(tail, '.*"delivery_tag": "([^"%s\\]+)"')
end

while position <= #ARGV do
  local queue, tag, id, claim = tonumber(next_argument()), next_argument(), next_argument(), next_argument()
  local results, messages = tonumber(next_argument()), tonumber(next_argument())
  local republished = next_argument() == '1'
  local state = redis.call('GET', job_prefix .. id)
  -- No state: the server lost it, so nobody else can hold the job either.
  local owned = not state or string.sub(state, 1, #claim + 3) == 'H ' .. claim .. ' '
  local cancelled = owned and cancelled_any and redis.call('ZSCORE', KEYS[1], id)
  for _ = 1, results do
    local key, value, ttl = next_argument(), next_argument(), tonumber(next_argument())
    if owned and not cancelled then store(key, value, ttl) end
  end
  local heir
  for _ = 1, messages do
    local list, message = next_argument(), next_argument()
    if owned and not cancelled then redis.call('LPUSH', list, message) end
    if republished then heir = heir or tag_of(message, id) end
  end
  if owned then
    if cancelled then store(result_prefix .. id, revoked(id), result_ttl) end
    redis.call('HDEL', KEYS[2 * queue], tag)
    redis.call('ZREM', KEYS[2 * queue + 1], tag)
    local free = heir and 'R ' .. heir .. ' 0' or 'F 0'
    redis.call('SET', job_prefix .. id, (republished and not cancelled) and free or 'D', 'EX', job_ttl)
  end
  answers[#answers + 1] = cancelled and 2 or owned and 1 or 0
end
return answers
