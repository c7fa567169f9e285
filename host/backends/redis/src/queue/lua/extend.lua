-- Extends deliveries. ARGV: the longest time in ms that a message may be invisible from its
-- receive; then for each delivery the id, the count, and the time from now in ms. Returns a number
-- for each: as `settle`, or 4 if that would be longer, or 5 if the message was cancelled.
local now = to_ms(time_us())
local ceiling = tonumber(ARGV[1])
local ids = {}
for at = 2, #ARGV, 3 do ids[#ids + 1] = ARGV[at] end
local records = call('HMGET', q.delivery, unpack(ids))
local answers, stirred = {}, false
for at, id in ipairs(ids) do
  local count, more = ARGV[at * 3], tonumber(ARGV[at * 3 + 1])
  local d = read_delivery(records[at])
  if was_cancelled(q, id, d) then
    answers[at] = 5
  elseif not d then
    answers[at] = 1
  elseif d.count ~= count then
    answers[at] = 2
  elseif d.worker == '' then
    answers[at] = 3
  elseif now + more > d.received + ceiling then
    answers[at] = 4
  else
    local before = tonumber(call('ZSCORE', q.leases, id) or '0')
    call('ZADD', q.leases, num(now + more), id)
    stirred = stirred or now + more < before
    answers[at] = 0
  end
end
if stirred then wake(q) end
return answers
