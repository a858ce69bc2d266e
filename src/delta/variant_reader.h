// VariantReader: one variant on disk as the loader sees it, whatever its form: a variant file, or a
// LoRA adapter. Opening reads and checks headers; read() reads all values once. Used by one thread,
// which may start others.
#pragma once

#include <memory>
#include <string>

#include "backend/backend.h"
#include "delta/loader.h"
#include "delta/lora_adapter.h"

namespace deltad {

class VariantReader {
 public:
  virtual ~VariantReader() = default;

  virtual const std::string& path() const = 0;  // of the file with the values, for messages
  virtual const VariantContent& content() const = 0;
  virtual std::string claimed_digest() const = 0;    // "": only reading tells
  virtual bool head_follows_embeddings() const = 0;  // of the variant
  virtual bool says_base() const { return true; }    // which base it was made for
  // Reads and checks every value, and hands them to `weights` unless it is null. The digest of what
  // was read.
  virtual Result<std::string> read(VariantWeights* weights) const = 0;
};

// table and options outlive the reader.
Result<std::unique_ptr<VariantReader>> open_delta_reader(const std::string& path,
                                                         const WeightTable& table,
                                                         const VariantLoadOptions& options);
Result<std::unique_ptr<VariantReader>> open_adapter_reader(const std::string& path,
                                                           const WeightTable& table,
                                                           const VariantLoadOptions& options);

// Reads and checks every value of an adapter and keeps none. Its digest; "" if it was opened
// without a base and changes the embeddings, which a tied head then may follow.
Result<std::string> adapter_digest(const LoraAdapter& adapter, const VariantLoadOptions& options);

}  // namespace deltad
