-- Ends claims. ARGV: for each job its id, the token, and its next due time or ''. A job that the
-- token does not hold stays as it is, so a repeated call does nothing.
for at = 1, #ARGV, 3 do
  local id, token, next = ARGV[at], ARGV[at + 1], ARGV[at + 2]
  local claim = call('HGET', claims, id)
  if claim and string.match(claim, '^%d+ (.*)$') == token then
    call('HDEL', claims, id)
    call('ZREM', order, place(call('HGET', whens, id), id))
    if next == '' then
      call('HDEL', jobs, id)
      call('HDEL', whens, id)
    else
      call('HSET', whens, id, next)
      call('ZADD', order, 0, place(next, id))
    end
  end
end
return 1
