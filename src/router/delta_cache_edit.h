// DeltaCache::Edit: a change of one entry. While it lives, the entry is in no index of the cache;
// when it ends, the entry is put back into those in which it now belongs.
#pragma once

#include "router/delta_cache.h"

namespace deltad {

class DeltaCache::Edit {
 public:
  Edit(DeltaCache& cache, VariantId id) : cache_(cache), id_(id), entry_(cache.at(id)) {
    cache_.index(id_, entry_, -1);
  }
  ~Edit() { cache_.index(id_, entry_, +1); }
  Edit(const Edit&) = delete;
  Edit& operator=(const Edit&) = delete;

 private:
  DeltaCache& cache_;
  const VariantId id_;
  const Entry& entry_;
};

}  // namespace deltad
