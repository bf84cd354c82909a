-- What a fact does to a hold; shared by apply and trip. Rules 15, 17.
-- plan_fact returns the hold as the fact leaves it, nil when its state stays, and
-- what the counters get: items, and units by item.
local function plan_fact(h, f)
  local part = f.lines ~= '' and f.part or h.part
  local stays
  if f.state == 'held' then
    stays = h.state ~= 'none'
  elseif f.state == 'claimed' then
    stays = h.state == 'claimed' and h.part == part
  else
    stays = is_ended(h)
  end
  if stays then return nil, {}, {} end

  local after = {}
  for field, value in pairs(h) do after[field] = value end
  after.state, after.firm = f.state, '1'
  after.part = f.state == 'claimed' and part or ''
  if h.lines == '' then after.lines = f.lines end
  if h.shop == '0' then after.shop = f.shop end
  if h.state == 'none' then
    after.expires, after.attempt = f.expires, f.attempt
    after.granted = f.granted == '0' and text(now) or f.granted
  end
  -- A claim is in the ledger: it takes its units also when they went back here,
  -- or when the mark was for another part.
  return after, units_back(lines_out(h), lines_out(after))
end

-- write_fact carries out a plan and returns the hold as it is then. Counters were
-- checked; skip_units leaves them alone.
local function write_fact(token, h, f, after, items, units, skip_units)
  if not after then
    if f.state == 'held' and h.state == 'held' then
      make_firm(token, h)
      extend_to(token, h, f.expires)
    end
    return h
  end
  if not skip_units then return_units(after.shop, items, units) end
  if after.state == 'held' then put_hold(token, after) else put_end(token, after) end
  return after
end
