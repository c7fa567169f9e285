-- Adds messages at the end. ARGV: the suffix of every id of this queue, then for each message its
-- body, attributes or '', delay in ms, and group as "=name" or ''. Returns their ids.
local us = time_us()
local now = to_ms(us)
-- Microseconds that always increase, so that ids sort in the order of sending.
local seq = math.max(us, tonumber(call('GET', q.seq) or '0') + 1) - 1
local ids, bodies, waiting, entries = {}, {}, {}, {}
for at = 2, #ARGV, 4 do
  seq = seq + 1
  local body, attributes, delay, group = ARGV[at], ARGV[at + 1], tonumber(ARGV[at + 2]), ARGV[at + 3]
  local id = string.format('%016.0f', seq) .. (attributes == '' and '-' or 'a') .. ARGV[1]
  ids[#ids + 1] = id
  if attributes == '' and delay == 0 and group == '' then
    bodies[#bodies + 1] = id
    bodies[#bodies + 1] = body
    waiting[#waiting + 1] = seq_of(id)
    waiting[#waiting + 1] = id
    entries[#entries + 1] = id
  else
    add(q, id, body, attributes, group, now + delay, now)
  end
end
call('SET', q.seq, num(seq))
if #bodies > 0 then
  call('HSET', q.body, unpack(bodies))
  call('ZADD', q.wait, unpack(waiting))
  if rules_of(q) then announce(q, entries) end
end
wake(q)
return ids
