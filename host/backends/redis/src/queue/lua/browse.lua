-- Lists waiting messages without receiving them: first those that can be received, in the order of
-- sending, then those behind the heads of groups. ARGV: the cursor ('' for all, "w" and an id or
-- its beginning, or "b" and a member of `behind`), the maximum number of messages, the maximum of
-- their bytes, and the maximum bytes of a body. Returns the next cursor, '' at the end, and the
-- messages as `claim`.
local after, most = ARGV[1], tonumber(ARGV[2])
local now = to_ms(time_us())
promote(q, now)
local ids, places, is_end = {}, {}, false
if string.sub(after, 1, 1) ~= 'b' then
  local last = string.sub(after, 2)
  -- Any number of dead letters of several queues may share a position.
  local wanted, skipped = most + 100, 0
  local from = last == '' and '-inf' or seq_of(last)
  local found
  repeat
    found = call('ZRANGEBYSCORE', q.wait, from, '+inf', 'LIMIT', skipped, wanted)
    skipped = skipped + #found
    for _, id in ipairs(found) do
      if id > last and #ids < most then
        ids[#ids + 1] = id
        places[#places + 1] = 'w' .. id
      end
    end
  until #ids >= most or #found < wanted
  if #ids < most then after = 'b' end
end
local listed = #ids
if string.sub(after, 1, 1) == 'b' then
  local last = string.sub(after, 2)
  local from = last == '' and '-' or '(' .. last
  local found = call('ZRANGEBYLEX', q.behind, from, '+', 'LIMIT', 0, most - listed)
  is_end = #found < most - listed
  for _, member in ipairs(found) do
    local id = string.sub(member, -25)
    if tonumber(call('HGET', q.due, id) or '0') <= now then
      ids[#ids + 1] = id
      places[#places + 1] = 'b' .. member
    end
    after = 'b' .. member
  end
elseif #places > 0 then
  after = places[#places]
end
if #fit(q, ids, tonumber(ARGV[3])) > 0 then
  after, is_end = places[#ids], false
end
return describe(q, ids, tonumber(ARGV[4]), is_end and '' or after)
