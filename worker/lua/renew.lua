#!lua flags=allow-oom
-- Renew the leases of held messages whose claims still hold, and that of the worker itself. It may have been forgotten
-- while it was frozen, so it announces its inboxes each time.
-- KEYS  workers, inboxes, loads, service rates, unit rates, message sizes, then for each queue: index
-- ARGV  worker, the lists that it waits on (one a line), job key prefix, job ttl,
--       how busy it was lately ('' = nothing to say),
--       how many arguments follow of rates: queue, units a second ('' = nothing to say),
--       and for each of three bands messages opened and their units ...,
--       then for each message: queue number, tag, task id, claim
-- Returns the tags whose claims are lost
local FIRST_INDEX, FIRST_RATE, BANDS = 7, 7, 3
local time = redis.call('TIME')
local now = string.format('%d.%06d', time[1], time[2])
redis.call('ZADD', KEYS[1], now, ARGV[1])
redis.call('HSET', KEYS[2], ARGV[1], ARGV[2])
if ARGV[5] ~= '' then redis.call('HSET', KEYS[3], ARGV[1], ARGV[5]) end

-- What all workers of a queue share. Each moves the pace a part of the way towards its own; the size of a message is the
-- mean of the last ones that any of them opened, of all bands and of each; thousands that were refused leave a trace of
-- it, so that rate and sizes still go together. What is not of this form begins anew.
local SHARE, LATELY, LEAST_UNITS = 0.2, 50, 1e-6
local NUMBER = '([%d.e+-]+)'
local function number(text) return tonumber(text and string.match(text, '^' .. NUMBER .. '$') or '') end

local function pace_of(queue, told)
  local before = number(redis.call('HGET', KEYS[5], queue))
  if not told then return before end
  local pace = before and before + SHARE * (told - before) or told
  redis.call('HSET', KEYS[5], queue, string.format('%.6g', pace))
  return pace
end

local function size_of(field, opened, opened_units)
  local text = redis.call('HGET', KEYS[6], field) or ''
  local units, messages = string.match(text, '^' .. NUMBER .. ' ' .. NUMBER .. '$')
  units, messages = tonumber(units or '') or 0, tonumber(messages or '') or 0
  if opened > 0 then
    local kept = (1 - 1 / LATELY) ^ opened
    local weight = LATELY * (1 - kept)
    units = units * kept + opened_units / opened * weight
    messages = messages * kept + weight
    if units > 0 then units = math.max(units, LEAST_UNITS * messages) end
    redis.call('HSET', KEYS[6], field, string.format('%.6g %.6g', units, messages))
  end
  return units / messages -- nan if none is known, which is not above 0
end

for position = FIRST_RATE, FIRST_RATE + ARGV[6] - 1, 2 + 2 * BANDS do
  local queue = ARGV[position]
  local pace = pace_of(queue, tonumber(ARGV[position + 1]))
  local messages, units = 0, 0
  for band = 0, BANDS - 1 do
    local opened, opened_units = tonumber(ARGV[position + 2 + 2 * band]), tonumber(ARGV[position + 3 + 2 * band])
    size_of(band .. ' ' .. queue, opened, opened_units)
    messages, units = messages + opened, units + opened_units
  end
  local size = size_of(queue, messages, units)
  if pace and size > 0 then redis.call('HSET', KEYS[4], queue, string.format('%.6g', pace / size)) end
end

local lost = {}
for position = FIRST_RATE + ARGV[6], #ARGV, 4 do
  local queue, tag, id, claim = tonumber(ARGV[position]), ARGV[position + 1], ARGV[position + 2], ARGV[position + 3]
  local job = ARGV[3] .. id
  local state = redis.call('GET', job)
  if state and string.sub(state, 1, #claim + 3) == 'H ' .. claim .. ' ' then
    redis.call('ZADD', KEYS[FIRST_INDEX + queue - 1], 'XX', now, tag)
    redis.call('EXPIRE', job, ARGV[4])
  else
    lost[#lost + 1] = tag
  end
end
return lost
