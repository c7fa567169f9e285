-- Chooses the messages of a claim by the rules of its process. ARGV, after those of `claim`: 'set' if
-- these rules replace the others, 'gone' if the process knows that others did, else 'keep'; 1 if
-- each group is a tenant, else 0; the place of the priority; the usual price; for each priority the
-- ms after which a message goes first, or ''; the number of tenants with another price, and for each
-- its name and price; the tenants that get nothing.
local first_wait, first_price = 12, 18

local function read_terms()
  local terms = { usual = tonumber(ARGV[12]), prices = {}, waits = {}, parked = {}, skip = {}, empty = {} }
  for priority = 1, 5 do terms.waits[priority] = tonumber(ARGV[first_wait + priority]) end
  local last = first_price + 2 * tonumber(ARGV[first_price])
  for at = first_price + 1, last, 2 do terms.prices[ARGV[at]] = tonumber(ARGV[at + 1]) end
  for at = last + 1, #ARGV do terms.parked[ARGV[at]] = true end
  return terms
end

-- Returns the first tenant of a sorted set that is not parked, and its score. Parked ones are skipped
-- once: the order before them does not change within a call.
local function first_tenant(key, terms)
  while true do
    local at = terms.skip[key] or 0
    local found = call('ZRANGE', key, at, at, 'WITHSCORES')
    if not (found[1] and terms.parked[found[1]]) then return found[1], tonumber(found[2]) end
    terms.skip[key] = at + 1
  end
end

-- Takes the turn of a lane without messages.
local function retire(s, priority, tenant, pass)
  s.active[lane(priority, tenant)], s.has_new_times[priority] = nil, true
  call('ZREM', of('turns', priority), tenant)
  if pass > s.virtual[priority] then call('ZADD', of('past', priority), num(pass), tenant) end
end

-- Returns the message whose turn it is at a priority, which may have left `wait`.
local function in_turn(s, terms, priority, looks)
  while looks.left > 0 and not terms.empty[priority] do
    local tenant, pass = first_tenant(of('turns', priority), terms)
    if not tenant then
      terms.empty[priority] = true
      return nil
    end
    local prefix, found = lane(priority, tenant), nil
    if terms.newest then
      found = call('ZREVRANGEBYLEX', lanes, beyond(prefix), '[' .. prefix, 'LIMIT', '0', '2')
    else
      found = members(lanes, prefix, '2')
    end
    if found[1] then
      return {
        id = string.sub(found[1], -25), member = found[1], priority = priority, tenant = tenant, pass = pass,
        has_more = found[2] ~= nil,
      }
    end
    retire(s, priority, tenant, pass)
    looks.left = looks.left - 1
  end
end

-- Moves messages that have waited for the longest wait of their priority to `overdue`.
local function find_overdue(s, terms, now)
  for priority, wait in pairs(terms.waits) do
    local found = call('ZRANGEBYSCORE', of('since', priority), '-inf', num(now - wait), 'WITHSCORES', 'LIMIT', 0, step)
    for at = 1, #found, 2 do
      local id, since = found[at], found[at + 1]
      call('ZREM', of('since', priority), id)
      if call('ZSCORE', q.wait, id) then
        local group = s.by_group and call('HGET', q.group, id)
        local tenant = group and string.sub(group, 2) or ''
        call('ZADD', overdue, 0, lane(priority, tenant) .. string.format('%016.0f', since) .. id)
        call('ZADD', of('late', priority), 'LT', since, tenant)
      end
    end
  end
end

local function since_of(member) return tonumber(string.sub(member, -41, -26)) end

-- Notes when the first overdue message of a tenant could be received.
local function note_first(priority, tenant)
  local found = members(overdue, lane(priority, tenant), '1')
  if found[1] then
    call('ZADD', of('late', priority), since_of(found[1]), tenant)
  else
    call('ZREM', of('late', priority), tenant)
  end
end

-- Returns the message that has waited longest, if that is too long.
local function overdue_message(s, terms, looks, now)
  if terms.none_overdue then return nil end
  local longest
  for priority, wait in pairs(terms.waits) do
    local is_sure = false
    while not is_sure and looks.left > 0 do
      local tenant, since = first_tenant(of('late', priority), terms)
      is_sure = true
      if tenant and since <= now - wait and not (longest and longest.since <= since) then
        local id, member = first_of(overdue, lane(priority, tenant), looks)
        is_sure = member and since_of(member) == since
        if is_sure then
          longest = { id = id, overdue = member, priority = priority, tenant = tenant, since = since }
        else
          note_first(priority, tenant)
        end
        looks.left = looks.left - 1
      end
    end
  end
  terms.none_overdue = not longest
  return longest
end

-- Takes a message that has left `wait` out of all other indexes. Its lane pays.
local function take_chosen(s, terms, chosen)
  local priority, tenant = chosen.priority, chosen.tenant
  call('ZREM', lanes, chosen.member or lane(priority, tenant) .. chosen.id)
  if has_since(s, priority) then call('ZREM', of('since', priority), chosen.id) end
  if chosen.overdue then
    call('ZREM', overdue, chosen.overdue)
    note_first(priority, tenant)
    activate(s, priority, tenant)
    terms.skip[of('turns', priority)], terms.empty[priority] = nil, nil
    chosen.has_more = #members(lanes, lane(priority, tenant), '1') > 0
    chosen.pass = tonumber(call('ZSCORE', of('turns', priority), tenant))
  end
  -- A tenant that was parked did not save up turns either.
  local pass = math.max(chosen.pass, s.virtual[priority])
  if not chosen.overdue then
    s.virtual[priority], s.has_new_times[priority] = pass, true
  end
  local price = terms.prices[tenant] or terms.usual
  -- A double beyond 2^53 has no room for small prices.
  pass = math.max(pass + price, pass * (1 + 2 ^ -52))
  if chosen.has_more then
    call('ZADD', of('turns', priority), num(pass), tenant)
  else
    retire(s, priority, tenant, pass)
  end
end

-- Keeps the virtual times, and forgets lanes whose payments no longer count.
local function keep_times(s, now)
  for priority in pairs(s.has_new_times) do
    local virtual, past = s.virtual[priority], of('past', priority)
    call('HSET', q.sharing, 'v' .. priority, num(virtual))
    call('ZREMRANGEBYSCORE', past, '-inf', num(virtual))
    call('ZREMRANGEBYRANK', past, 0, -most_past - 1)
    if virtual > 2 ^ 60 then
      -- All begin again, and the lanes are given their turns by a walk.
      call('UNLINK', of('turns', priority), past)
      call('HDEL', q.sharing, 'v' .. priority)
      begin_walk(s, now)
    end
  end
end

-- Returns the ids of the messages that were taken, whether the bytes kept others away (`more`), the
-- number of those that were overdue, and whether another call may find more (`again`).
local function choose(s, terms, most, most_bytes, now)
  local taken = { ids = {}, more = false, overdue = 0 }
  local looks, bytes, has_attributes = { left = most_looks }, 0, call('EXISTS', q.attributes) == 1
  s.has_new_times = {}
  find_overdue(s, terms, now)
  while #taken.ids < most do
    local chosen, priority = overdue_message(s, terms, looks, now), 1
    while not chosen and priority <= 5 do
      chosen = in_turn(s, terms, priority, looks)
      priority = priority + 1
    end
    if not chosen or looks.left <= 0 then break end
    bytes = bytes + call('HSTRLEN', q.body, chosen.id)
    if has_attributes then bytes = bytes + call('HSTRLEN', q.attributes, chosen.id) end
    if bytes > most_bytes and #taken.ids > 0 then
      taken.more = true
      break
    end
    if call('ZREM', q.wait, chosen.id) == 1 then
      take_chosen(s, terms, chosen)
      taken.ids[#taken.ids + 1] = chosen.id
      if chosen.overdue then taken.overdue = taken.overdue + 1 end
    else
      call('ZREM', lanes, chosen.member)
      looks.left = looks.left - 1
    end
  end
  keep_times(s, now)
  taken.again = looks.left <= 0
  taken.more = taken.more or taken.again
  return taken
end

-- Notes which priorities need `since`.
local function note_waits(s, terms, now)
  local more = ''
  for priority in pairs(terms.waits) do
    if not has_since(s, priority) then more = more .. priority end
  end
  if more ~= '' then
    s.waits = s.waits .. more
    call('HSET', q.sharing, 'waits', s.waits)
    begin_walk(s, now)
  end
end

share = function(most, newest, most_bytes, now)
  local s = read_sharing()
  if ARGV[9] == 'set' then s = set_rules(s, ARGV[10] == '1', ARGV[11], now) end
  if s and s.order then
    put_some_in_order(s, now)
    if s.order then return { ids = {}, again = true } end
  end
  local is_own = s and s.by_group == (ARGV[10] == '1') and s.place == ARGV[11]
  local is_plain = ARGV[10] == '0' and ARGV[11] == ''
  if ARGV[9] == 'keep' and not (is_own or is_plain) then return { gone = true } end
  if s and not s.by_group and s.place == '' then
    forget_lanes()
    call('UNLINK', q.sharing)
    s = nil
  end
  if not s then return nil end
  local terms = read_terms()
  terms.newest = newest
  note_waits(s, terms, now)
  local is_complete, soon = catch_up(s, now)
  local taken = choose(s, terms, most, most_bytes, now)
  taken.soon = soon
  if #taken.ids < most and not is_complete then taken.more, taken.again = true, true end
  return taken
end
