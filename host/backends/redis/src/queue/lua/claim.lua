-- Hands out messages. ARGV: worker, the number of this claim, how many at most, for how long in ms,
-- 'newest' or 'oldest' first, the numbers of this worker's claims whose answers were lost, each
-- followed by a comma, how many bytes the messages may have, and how many a body may have at most:
-- a longer one is not loaded, its length is answered in its place. Answers with: ms until something
-- can be received, -1 for never, where there is nothing now, -2 if the worker was given up; or 0,
-- 1 if only the bytes kept more away, and per message id, body, attributes, group, count, first
-- received. A body or attributes that should be there and are not are answered as nil.
local worker, claim = ARGV[1], ARGV[2]
if call('SISMEMBER', q.workers, worker) == 0 then
  return { -2 }
end
if call('ZSCORE', void(q, worker), claim) then
  -- It comes late: whoever made it has given it up, and nobody would hear what it brings.
  return { -1 }
end
local now = to_ms(time_us())
if ARGV[6] ~= '' then
  local lost = {}
  local own = void(q, worker)
  for number in string.gmatch(ARGV[6], '(%d+),') do
    lost[number] = true
    call('ZADD', own, num(now), number)
  end
  call('ZREMRANGEBYSCORE', own, '-inf', num(now - late * 1000))
  call('EXPIRE', own, late)
  for _, id in ipairs(call('SMEMBERS', in_process(q, worker))) do
    local record = call('HGET', q.delivery, id)
    local d = read_delivery(record)
    if d and lost[d.claim] then give_back(q, id, record, now) end
  end
end
promote(q, now)
local popped = call(ARGV[5] == 'newest' and 'ZPOPMAX' or 'ZPOPMIN', q.wait, ARGV[3])
local ids = {}
for at = 1, #popped, 2 do ids[#ids + 1] = popped[at] end
if #ids == 0 then
  local soonest = -1
  for _, key in ipairs({ q.leases, q.delayed }) do
    local first = call('ZRANGE', key, 0, 0, 'WITHSCORES')
    if first[2] then
      local left = math.max(0, tonumber(first[2]) - now)
      if soonest < 0 or left < soonest then soonest = left end
    end
  end
  return { soonest }
end
local more = 0
for at = #ids, fit(q, ids, tonumber(ARGV[7])) + 1, -1 do
  call('ZADD', q.wait, seq_of(ids[at]), ids[at])
  ids[at], more = nil, 1
end
return hand_out(q, ids, { worker = worker, claim = claim, visibility = ARGV[4], most = tonumber(ARGV[8]), more = more }, now)
