-- Hands out messages. ARGV: the worker, the number of this claim, the maximum number of messages,
-- the visibility timeout in ms, 'newest' or 'oldest' first, the numbers of this worker's claims
-- whose answers were lost, each followed by a comma, the maximum bytes of the messages, and the
-- maximum bytes of a body: a longer one is not loaded, and its length is returned in its place;
-- then as `share`, or 'set' in a first call without rules, else 'keep'. If there is no message now,
-- returns the ms until one can be received, -1 for never; -2 if the worker was given up; -3 if the
-- next call, with `share`, may find some; -4 if `share` says 'keep' and the rules are gone.
-- Otherwise returns 0, or 1 if only the bytes kept more messages away, and 2 more for each overdue
-- message; the time in ms; and lists: the ids, then for each message its body, attributes, group,
-- count, and the time of its first receive. A missing value is nil. A list may be empty if no
-- message has a value, and the last two are empty if all messages are received for the first time.
local worker, claim = ARGV[1], ARGV[2]
if call('SISMEMBER', q.workers, worker) == 0 then
  return { -2 }
end
if call('ZSCORE', void(q, worker), claim) then
  -- The call comes late: its worker has given it up and would not hear the answer.
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
local newest, most_bytes = ARGV[5] == 'newest', tonumber(ARGV[7])
local shared = share and share(tonumber(ARGV[3]), newest, most_bytes, now)
if shared and shared.gone then return { -4 } end
if not share then
  local rules = rules_of(q)
  if rules and (ARGV[9] == 'set' or rules.order) then
    return { -3 }
  end
end
local ids = shared and shared.ids or call(newest and 'ZREVRANGE' or 'ZRANGE', q.wait, '0', ARGV[3] - 1)
if #ids == 0 then
  if shared and shared.again then
    return { -3 }
  end
  local soonest = shared and shared.soon and 1000 or -1
  for _, key in ipairs({ q.leases, q.delayed }) do
    local first = call('ZRANGE', key, 0, 0, 'WITHSCORES')
    if first[2] then
      local left = math.max(0, tonumber(first[2]) - now)
      if soonest < 0 or left < soonest then soonest = left end
    end
  end
  return { soonest }
end
local more
if shared then
  more = (shared.more and 1 or 0) + 2 * shared.overdue
else
  more = #fit(q, ids, most_bytes) > 0 and 1 or 0
  local first, last = '0', #ids - 1
  if newest then first, last = -#ids, '-1' end
  call('ZREMRANGEBYRANK', q.wait, first, last)
end
return hand_out(q, ids, { worker = worker, claim = claim, visibility = ARGV[4], most = tonumber(ARGV[8]), more = more }, now)
