-- How the messages in `wait` are shared out. Each is in the lane of its priority and tenant. The
-- lane that has paid least goes first. A lane is an index that may be behind: a message counts only
-- if it is in `wait` as well.
--
-- sharing   hash: `by_group` is 1 if each group is a tenant, else 0; `place` names the priority: ''
--           for none, "a" and the name of an attribute, or "p" and a JSON pointer; `order` is the
--           cursor while groups are put in order again; `cursor` the position while lanes are
--           filled from `wait`, and `walked` the ms when that began last; `waits` has the
--           priorities that need `since`; `v1` to `v5` are the virtual times, each the pass of the
--           lane of this priority that was last served
-- lanes     sorted set without scores, "priority:length:tenant:id"
-- turns:P   sorted set, tenant by its pass: the sum of its payments. Has all lanes with messages
-- past:P    likewise, lanes without messages whose pass is beyond the virtual time
-- since:P   sorted set, id by the ms from which it can be received
-- overdue   sorted set without scores, "priority:length:tenant:", the ms as 16 digits, and the id:
--           messages that were in `since` for the longest wait; late:P  sorted set, tenant by the
--           ms of its first overdue message

-- The maximum number of messages that one call moves between two indexes.
local step = 500
-- The bytes of bodies after which a step ends, and the maximum bytes of a body or of attributes that
-- are searched for a priority.
local most_read, largest = 4000000, 1000000
-- The maximum number of lanes without a message, and of messages without a place in `wait`, that one
-- call removes.
local most_looks = 1000
-- The maximum number of lanes in `past`. Those that have paid least beyond the virtual time go.
local most_past = 10000
-- The ms between two walks through `wait` for messages that entered it without notice, as an older
-- program lets them.
local walk_interval = 60000

local lanes, overdue = q.base .. ':lanes', q.base .. ':overdue'

local function of(kind, priority) return q.base .. ':' .. kind .. ':' .. priority end

local function lane(priority, tenant) return priority .. ':' .. behind_prefix(tenant) end

-- Returns the rules and the state of all lanes; nil if there are no rules.
local function read_sharing()
  local found = call('HMGET', q.sharing, 'by_group', 'place', 'order', 'cursor', 'walked', 'waits',
    'v1', 'v2', 'v3', 'v4', 'v5')
  if not found[1] then return nil end
  local s = {
    by_group = found[1] == '1', place = found[2], order = found[3], cursor = found[4],
    walked = tonumber(found[5] or '0'), waits = found[6] or '', virtual = {}, active = {},
  }
  for priority = 1, 5 do s.virtual[priority] = tonumber(found[6 + priority] or '0') end
  return s
end

local function has_since(s, priority) return string.find(s.waits, priority, 1, true) ~= nil end

-- Returns the value at a JSON pointer.
local function at_pointer(value, pointer)
  for part in string.gmatch(pointer, '/([^/]*)') do
    if type(value) ~= 'table' then return nil end
    local name = string.gsub(string.gsub(part, '~1', '/'), '~0', '~')
    local index = string.match(part, '^0$') or string.match(part, '^[1-9]%d*$')
    local member = value[name]
    if member == nil and index then member = value[tonumber(index) + 1] end
    value = member
  end
  return value
end

-- Returns the text of the first attribute of a name.
local function in_attributes(attributes, name)
  for _, attribute in ipairs(attributes) do
    if attribute.name == name then
      return type(attribute.value) == 'table' and attribute.value.text or nil
    end
  end
end

-- Returns the priority that a text of attributes or a body names, the middle one if it names none.
local function priority_in(place, text)
  local is_json, value = pcall(cjson.decode, text)
  if not is_json then return 3 end
  local find = string.sub(place, 1, 1) == 'a' and in_attributes or at_pointer
  value = find(value, string.sub(place, 2))
  if type(value) == 'string' then
    value = tonumber(string.match(value, '^%s*%+?0*([1-5])%s*$'))
  end
  local is_priority = type(value) == 'number' and value % 1 == 0 and value >= 1 and value <= 5
  return is_priority and value or 3
end

-- Returns the text that names the priority of a message, '' if there is none.
local function text_with_priority(s, id)
  local is_attribute = string.sub(s.place, 1, 1) == 'a'
  if s.place == '' or is_attribute and string.sub(id, 17, 17) ~= 'a' then return '' end
  local key = is_attribute and q.attributes or q.body
  if call('HSTRLEN', key, id) > largest then return '' end
  return call('HGET', key, id) or ''
end

-- Returns the priority and the tenant of a message, and the bytes that were read for it.
local function lane_of(s, id, group)
  local text = text_with_priority(s, id)
  local priority = text == '' and 3 or priority_in(s.place, text)
  return priority, s.by_group and group and string.sub(group, 2) or '', #text
end

-- Gives a lane its turn, if it has none. The time in which it was empty earns it nothing.
local function activate(s, priority, tenant)
  local name = lane(priority, tenant)
  if s.active[name] then return end
  s.active[name] = true
  if call('ZSCORE', of('turns', priority), tenant) then return end
  local past = tonumber(call('ZSCORE', of('past', priority), tenant) or '0')
  call('ZADD', of('turns', priority), num(math.max(past, s.virtual[priority])), tenant)
  call('ZREM', of('past', priority), tenant)
end

-- Returns the ms from which a message could be received, as far as that is known: it was sent or
-- received then.
local function known_since(id)
  local d = read_delivery(call('HGET', q.delivery, id))
  return d and d.received or num(to_ms(tonumber(seq_of(id))))
end

-- Puts messages into their lanes. `since` has the ms from which each can be received, '' for the time
-- of sending; without it, a known time stays. Returns how many of them were looked at.
local function fill_lanes(s, ids, since)
  local waiting, groups = call('ZMSCORE', q.wait, unpack(ids)), s.by_group and column(q.group, ids) or {}
  local bytes, done, added = 0, #ids, {}
  for at, id in ipairs(ids) do
    if waiting[at] then
      local priority, tenant, read = lane_of(s, id, groups[at])
      added[#added + 1], added[#added + 2] = '0', lane(priority, tenant) .. id
      activate(s, priority, tenant)
      if has_since(s, priority) and since and since[at] ~= '' then
        call('ZADD', of('since', priority), since[at], id)
      elseif has_since(s, priority) then
        call('ZADD', of('since', priority), 'NX', known_since(id), id)
      end
      bytes = bytes + read
      if bytes > most_read then
        done = at
        break
      end
    end
  end
  if #added > 0 then call('ZADD', lanes, unpack(added)) end
  return done
end

-- Puts the first entries into their lanes. Returns whether there may be more.
local function read_entries(s)
  local found = call('LRANGE', q.entries, 0, step - 1)
  if #found == 0 then return false end
  local ids, since = {}, {}
  for at, entry in ipairs(found) do ids[at], since[at] = string.sub(entry, 1, 25), string.sub(entry, 26) end
  local done = fill_lanes(s, ids, since)
  call('LTRIM', q.entries, done, -1)
  return done < #found or #found == step
end

-- Fills lanes from the next messages of `wait`. Returns whether there may be more.
local function walk(s)
  local found = call('ZRANGEBYSCORE', q.wait, s.cursor, '+inf', 'LIMIT', 0, step)
  local done = #found > 0 and fill_lanes(s, found) or 0
  if done == #found and #found < step then
    call('HDEL', q.sharing, 'cursor')
    s.cursor = nil
    return false
  end
  local last = seq_of(found[done])
  if last == s.cursor then last = num(tonumber(last) + 1) end
  s.cursor = last
  call('HSET', q.sharing, 'cursor', last)
  return true
end

local function begin_walk(s, now)
  s.cursor, s.walked = '0', now
  call('HSET', q.sharing, 'cursor', '0', 'walked', num(now))
end

-- Begins a walk through `wait` if messages in it are in no lane, or may be. Returns whether a walk
-- must come soon, but not yet.
local function look_for_missing(s, now)
  local waiting = call('ZCARD', q.wait)
  if s.cursor or waiting == 0 then return false end
  local missing = waiting > call('ZCARD', lanes) + call('LLEN', q.entries)
  local passed = now - s.walked
  if missing and (waiting <= step or passed > 1000) or passed > math.max(walk_interval, waiting) then
    begin_walk(s, now)
    return false
  end
  return missing
end

-- Lets the next messages behind heads be received. Returns whether there may be more.
local function empty_behind(now)
  local found = call('ZRANGE', q.behind, 0, step - 1)
  for _, member in ipairs(found) do
    local id = string.sub(member, -25)
    local due = tonumber(call('HGET', q.due, id) or '0')
    call('ZREM', q.behind, member)
    call('HDEL', q.due, id)
    place(q, id, due, now)
  end
  return #found == step
end

local function move_behind(id, group, now)
  local due = tonumber(call('ZSCORE', q.delayed, id) or '0')
  call('ZREM', q.wait, id)
  call('ZREM', q.delayed, id)
  line_up(q, id, group, due, now)
end

-- Makes a message the head of its group, or lets it wait behind the head. A message in flight goes
-- first, then the one that was sent first.
local function put_in_order(id, group, now)
  local member, runs = behind_prefix(group) .. id, call('ZSCORE', q.leases, id)
  local is_behind = call('ZSCORE', q.behind, member)
  if not (runs or is_behind or call('ZSCORE', q.wait, id) or call('ZSCORE', q.delayed, id)) then return end
  local head = call('HGET', q.heads, group)
  if head == id then return end
  if head and (call('ZSCORE', q.leases, head) or not runs and head < id) then
    if not (runs or is_behind) then move_behind(id, group, now) end
    return
  end
  call('HSET', q.heads, group, id)
  if is_behind then
    call('ZREM', q.behind, member)
    local due = tonumber(call('HGET', q.due, id) or '0')
    call('HDEL', q.due, id)
    place(q, id, due, now)
  end
  if head then move_behind(head, group, now) end
end

-- Puts the next messages with groups in order.
local function put_some_in_order(s, now)
  local page = call('HSCAN', q.group, s.order, 'COUNT', step)
  for at = 1, #page[2], 2 do put_in_order(page[2][at], page[2][at + 1], now) end
  if page[1] == '0' then
    s.order = nil
    call('HDEL', q.sharing, 'order')
  else
    s.order = page[1]
    call('HSET', q.sharing, 'order', s.order)
  end
end

local function forget_lanes()
  call('UNLINK', lanes, overdue, q.entries)
  for priority = 1, 5 do
    call('UNLINK', of('turns', priority), of('past', priority), of('since', priority), of('late', priority))
  end
end

-- Replaces the rules. Lanes are filled again, and groups put in order if they were not.
local function set_rules(s, by_group, place_of_priority, now)
  local is_plain = not by_group and place_of_priority == ''
  if s and s.by_group == by_group and s.place == place_of_priority or not s and is_plain then return s end
  local needs_order = s and (s.by_group or s.order) and not by_group
  forget_lanes()
  call('UNLINK', q.sharing)
  if by_group then call('UNLINK', q.heads) end
  q.rules = nil
  if is_plain and not needs_order then return nil end
  call('HSET', q.sharing, 'by_group', by_group and '1' or '0', 'place', place_of_priority, 'cursor', '0', 'walked',
    num(now))
  if needs_order then call('HSET', q.sharing, 'order', '0') end
  return read_sharing()
end

-- Takes messages out of their lanes that leave `wait` otherwise than by a claim. They still have
-- their content. Those that it leaves there, because others were long, are removed when they are
-- found.
local function leave_lanes(ids)
  local s = #ids > 0 and read_sharing()
  if not s then return end
  local groups, bytes = s.by_group and column(q.group, ids) or {}, 0
  for at, id in ipairs(ids) do
    local priority, tenant, read = lane_of(s, id, groups[at])
    call('ZREM', lanes, lane(priority, tenant) .. id)
    if has_since(s, priority) then call('ZREM', of('since', priority), id) end
    bytes = bytes + read
    if bytes > most_read then return end
  end
end

-- Returns the first members of a lane.
local function members(key, prefix, count)
  return call('ZRANGEBYLEX', key, '[' .. prefix, beyond(prefix), 'LIMIT', '0', count)
end

-- Returns the first message of a lane that can be received, and its member. Removes others.
local function first_of(key, prefix, looks)
  while looks.left > 0 do
    local member = members(key, prefix, '1')[1]
    if not member then return nil end
    local id = string.sub(member, -25)
    if call('ZSCORE', q.wait, id) then return id, member end
    call('ZREM', key, member)
    looks.left = looks.left - 1
  end
end

-- Brings the indexes up to the messages that wait, as far as one call may. Returns whether that is
-- all, and whether another walk must come soon.
local function catch_up(s, now)
  local more = s.by_group and empty_behind(now)
  more = read_entries(s) or more
  local soon = look_for_missing(s, now)
  return not (s.cursor and walk(s) or more), soon
end
