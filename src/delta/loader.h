// Loads a variant into a backend: a variant file or folder, or a LoRA adapter as it is. Called by
// loader threads.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "delta/delta_reader.h"
#include "delta/variant.h"
#include "model/weight_table.h"

namespace deltad {

struct VariantLoadOptions {
  std::string base_digest;                       // of the running base; "" skips the check
  std::string architecture;                      // of the running base
  int threads = kReadThreads;                    // that live only for the load
  int ranks = 1;                                 // that read a part of the file each; load_variant
                                                 // takes it from the store
  const std::atomic<bool>* cancelled = nullptr;  // polled between reads; kCancelled
  RateLimit* rate = nullptr;  // shared by all loads that are to stay below it together
  size_t max_bytes = 0;       // not 0: what was set aside for it; needing more is
                              // kResourceExhausted
};

struct VariantSize {
  int64_t bytes = 0;   // that it will take in memory (Variant::bytes)
  std::string digest;  // as the file claims it; "": unknown
};

// What load_variant would give, from the file's header alone, with all checks that the header
// allows. The file may be another one by the time it is loaded: hence max_bytes.
Result<VariantSize> measure_variant(const std::string& path, const WeightTable& table,
                                    const WeightStore& store, const VariantLoadOptions& options);

// The checks of load_variant that need no more than the file's header.
Status check_variant_header(const std::string& path, const WeightTable& table,
                            const VariantLoadOptions& options);

// All checks of load_variant, which reads the whole file, without keeping anything of it but its
// digest.
Result<std::string> verify_variant(const std::string& path, const WeightTable& table,
                                   const VariantLoadOptions& options);

// Checks everything DESIGN "Loading checks" names while reading (version, architecture, shapes,
// base digest, file digest, finite α); an error names the file, the tensor and what was expected. A
// file that changes, goes away or is replaced meanwhile is kUnavailable. All of the variant's
// memory is resident when it returns; after an error or a cancellation nothing of it is left.
Result<VariantRef> load_variant(const std::string& name, const std::string& path,
                                const WeightTable& table, WeightStore& store,
                                const VariantLoadOptions& options);

// A copy of it in the host's memory, in what the store has reserved.
Result<VariantRef> copy_to_host(const Variant& variant);
// Whether a copy may still stand for what lies on the disk: what is there is what it was read from.
bool is_current(const Variant& variant);
// On the device again, from such a copy.
Result<VariantRef> restore_variant(const Variant& copy, WeightStore& store,
                                   const std::atomic<bool>& cancelled);

}  // namespace deltad
