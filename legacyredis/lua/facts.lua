-- What a fact does to a hold; shared by apply and trip. Rules 15, 17.
-- The plan says: state afterwards ('' = stays), and where the units go:
-- -1 out of the counter, 1 back into it, 0 nowhere.
local function plan_fact(h, state)
  if state == 'held' then
    if h.state == 'none' then return 'held', -1 end
    return '', 0
  end
  if state == 'claimed' then
    if h.state == 'claimed' then return '', 0 end
    if is_live(h) then return 'claimed', 0 end
    return 'claimed', -1 -- never known here, or its units went back
  end
  if is_live(h) then return state, 1 end
  if h.state == 'none' then return state, 0 end
  return '', 0
end

-- write_fact carries out a plan. Counters were checked; skip_units leaves them alone.
local function write_fact(token, h, f, state, sign, skip_units)
  if state == '' then
    if f.state == 'held' and h.state == 'held' then make_firm(token, h) end
    return
  end
  if h.lines == '' then h.lines = f.lines end
  if h.shop == '0' then h.shop = f.shop end
  if h.state == 'none' then
    h.expires, h.attempt = f.expires, f.attempt
    h.granted = f.granted == '0' and text(now) or f.granted
  end
  h.state, h.firm = state, '1'
  if sign ~= 0 and not skip_units then
    local items, units = units_of(h.lines)
    if sign < 0 then take_units(h.shop, items, units, {}) else return_units(h.shop, items, units) end
  end
  if state == 'held' then put_hold(token, h) else put_end(token, h) end
end
