// Catalog: what can be asked for by name. Entries are added, replaced and removed at run time; an
// entry is one version of a variant, and lives on after it was replaced as long as requests use it.
// A variant has its own name; the adapter pool publishes members and any number of further names
// for each, all at once, and nobody else changes those. Owned by the router, under its mutex;
// prepare() reads files and is called outside.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "delta/variant.h"
#include "router/eviction_policy.h"
#include "router/queue_bounds.h"
#include "text/text_assets.h"

namespace deltad {

// resident: on the device, where it can be used; host: in memory, but not there.
enum class VariantState { kRegistered, kLoading, kResident, kHost, kFailed };
constexpr size_t kVariantStates = 5;
const char* variant_state_name(VariantState state);

struct VariantInfo {  // a snapshot
  std::string name, path, digest;
  std::string member;  // of the adapter pool, that answers under this name; "": it has its own
  VariantState state = VariantState::kRegistered;
  size_t bytes = 0;         // resident
  std::string error;        // of the last load
  uint64_t loads = 0;       // from the disk
  double load_seconds = 0;  // of the last
  uint64_t promotions = 0;  // from the host's memory
  double promotion_seconds = 0;
  int64_t created = 0;  // unix seconds
  bool pinned = false;
  int64_t waiting = 0;  // for it to be resident
  int64_t in_flight = 0;
  double rate = 0;           // requests a second, lately
  double idle_seconds = -1;  // since the last use; −1: never used
  double retry_seconds = 0;  // until a failed load is tried again
  VariantLimit limit;
};

struct VariantSource {
  std::string name;
  std::string path;  // a *.delta.safetensors file, or a folder with one
  VariantLimit limit = {};
  bool pin = false;  // the daemon pins it before it is ready
};

struct CatalogEntry {
  // Fixed when registered.
  std::string name, path;
  std::shared_ptr<const TextAssets> text;  // its own, else the base's
  std::string text_digest;                 // of its own files: weights loaded later must fit them
  int64_t created = 0;
  Status broken;        // why it cannot be loaded, whatever becomes of its files
  VariantLimit limit;   // that its registration brought
  bool pooled = false;  // a member of the adapter pool
  bool listed = true;   // false: in no catalog, but for who holds its handle
  int64_t bytes = -1;   // that it takes, if its header was read then

  // Set by whoever wants a load to stop, polled by the loader.
  std::atomic<bool> cancel_load{false};

  // The router's, under its mutex.
  VariantId id = 0;     // in the cache
  bool current = true;  // not replaced or removed
  std::string digest;   // of the last load; until there was one, as the file claims it
  VariantRef device, host;
  uint64_t loads = 0, promotions = 0;
  double load_seconds = 0, promotion_seconds = 0;
  int outdated = 0;           // loads in a row that found another file than was measured
  std::set<uint64_t> parked;  // tickets that wait for it, in order of arrival
};
using CatalogEntryRef = std::shared_ptr<CatalogEntry>;

struct CatalogName {
  CatalogEntryRef entry;
  std::shared_ptr<QueueShare> share;  // of the name: stays when another entry comes to stand here
};

// Its members are listed under this and their digest; no variant's name begins so.
constexpr const char* kMemberPrefix = "pool/";

// All that the adapter pool serves.
struct PoolListing {
  std::vector<CatalogEntryRef> members;
  std::map<std::string, std::string> names;  // → the name of the member that answers
};

class Catalog {
 public:
  explicit Catalog(std::string base_name) : base_name_(std::move(base_name)) {}
  // All of the sources; kInvalidArgument names the variant.
  static Result<Catalog> make(const std::string& base_name,
                              const std::vector<VariantSource>& sources,
                              const std::shared_ptr<const TextAssets>& base_text);

  // An entry that is not in the catalog yet. The name must not be empty or the base's and holds no
  // spaces or control characters; dots, slashes and colons are fine. The path must exist; the small
  // text files of a variant folder are read.
  static Result<CatalogEntryRef> prepare(const std::string& base_name, const VariantSource& source,
                                         const std::shared_ptr<const TextAssets>& base_text);

  // The same for what stands in the config: if the variant itself is broken the entry says so, and
  // fails its own requests. An error only if the name is.
  static Result<CatalogEntryRef> prepare_configured(
      const std::string& base_name, const VariantSource& source,
      const std::shared_ptr<const TextAssets>& base_text);

  // kConflict if the name is taken or reserved, kInvalidArgument if it is one of a pool's member.
  Status insert(CatalogEntryRef entry);
  // The entry that was there. kNotFound if there is none, kConflict if it is the adapter pool's.
  Result<CatalogEntryRef> replace(CatalogEntryRef entry);
  Result<CatalogEntryRef> remove(const std::string& name);

  // The name can be given by publish() only. kConflict if a variant has it.
  Status reserve(const std::string& name);
  void release(const std::string& name) { reserved_.erase(name); }
  // In place of what was published before. Entries and shares of names that stay are kept: a
  // member whose name and path are those of one that is here is that one. Returns what the names
  // stood for that were published before. kConflict or kInvalidArgument, and nothing is changed, if
  // a name is no name, taken, given twice, or its member is missing.
  Result<std::map<std::string, CatalogEntryRef>> publish(const PoolListing& listing);

  const CatalogName* find(const std::string& name) const;  // null if there is none
  const std::map<std::string, CatalogName>& names() const { return names_; }
  // "The model 'x' does not exist", and the names that do if they are few.
  Status unknown(const std::string& name) const;

 private:
  Result<CatalogName*> own(const std::string& name);

  std::string base_name_;
  std::map<std::string, CatalogName> names_;
  std::set<std::string> reserved_;
};

}  // namespace deltad
