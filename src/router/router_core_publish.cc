// The adapter pool's members and names, switched all at once, and variants under no name.
#include <fmt/core.h>

#include <set>

#include "router/router_core.h"

namespace deltad {

// Those that were asked for by this name and wait go over to what answers it now.
void RouterCore::follow(const std::string& name, const CatalogEntryRef& from,
                        const CatalogEntryRef& to) {
  std::vector<Ticket> tickets;
  for (const Ticket ticket : from->parked)
    if (live_.at(ticket).name == name) tickets.push_back(ticket);
  if (from->text != to->text) {
    end_these(from, tickets,
              unavailable(fmt::format(
                  "variant '{}' was replaced while the request waited: send it again", name)));
    tickets.clear();
  }
  for (const Ticket ticket : tickets) {
    live_.at(ticket).entry = to;
    from->parked.erase(ticket);
    to->parked.insert(ticket);
  }
  cache_.hand_over(from->id, to->id, static_cast<int64_t>(tickets.size()));
  absorb();
}

Status RouterCore::publish(const PoolListing& listing) {
  ASSIGN_OR_RETURN(const auto before, catalog_.publish(listing));
  for (const CatalogEntryRef& member : listing.members)
    if (member->id == 0 && catalog_.find(member->name)->entry == member) enter_cache(member);
  for (const auto& [name, member] : listing.names) counts_.offer(name);
  std::set<CatalogEntryRef> gone;
  for (const auto& [name, old] : before) {
    const CatalogName* named = catalog_.find(name);
    if (named == nullptr) {
      counts_.forget(name);
      std::vector<Ticket> tickets;
      for (const Ticket ticket : old->parked)
        if (live_.at(ticket).name == name) tickets.push_back(ticket);
      end_these(
          old, tickets,
          not_found(fmt::format("'{}' left the adapter pool while the request waited", name)));
    } else if (named->entry != old) {
      follow(name, old, named->entry);
    }
    const CatalogName* own = catalog_.find(old->name);
    if (own == nullptr || own->entry != old) gone.insert(old);
  }
  for (const CatalogEntryRef& old : gone) leave_catalog(old);
  absorb();
  return Status();
}

ModelHandle RouterCore::open_private(CatalogEntryRef entry) {
  entry->listed = false;
  enter_cache(entry);
  return ModelHandle{entry->name, false, entry->text, entry};
}

void RouterCore::close_private(const ModelHandle& model) {
  end_all(model.entry, cancelled(fmt::format("'{}' was closed", model.name)));
  leave_catalog(model.entry);
  absorb();
}

}  // namespace deltad
