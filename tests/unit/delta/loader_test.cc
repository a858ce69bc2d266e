// What the loader hands to a backend, seen by a backend that only writes it down.
#include "delta/loader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>
#include <map>
#include <tuple>
#include <vector>

#include "base/mutex.h"
#include "delta/delta_file.h"
#include "model/checkpoint.h"
#include "raw_file.h"
#include "tests/support/temp_folder.h"

namespace deltad {
namespace {

using ::testing::HasSubstr;
using testing::RawFile;
using testing::TempFolder;

std::string golden(const std::string& path) { return DELTAD_GOLDEN "/" + path; }

struct Notes {
  Mutex mutex;
  using Key = std::tuple<WeightId, int, int>;  // weight, part, level
  std::map<Key, std::string> signs;
  std::map<Key, std::vector<float>> alphas;
  std::map<std::pair<WeightId, int>, std::vector<uint16_t>> dense;
  std::map<std::pair<WeightId, int>, int64_t> dense_rows;
  std::vector<std::pair<WeightId, WeightId>> aliases;
  std::map<WeightId, int> levels;
  int finished = 0;
  int populated = 0;  // huge pages, before anything was put
  std::atomic<bool>* cancelled_after_a_page = nullptr;
  int alive = 0;  // weights that were made and are not gone
};

class NotingWeights : public VariantWeights {
 public:
  NotingWeights(Notes* notes, const WeightTable& table) : notes_(notes), table_(table) {
    ++notes_->alive;
  }
  ~NotingWeights() override { --notes_->alive; }

  Status put_sign_rows(WeightId weight, int part, int level, int64_t first, int64_t count,
                       const uint8_t* bits) override {
    const int64_t row = (spec(weight).columns + 7) / 8;
    MutexLock lock(notes_->mutex);
    std::string& signs = notes_->signs[{weight, part, level}];
    signs.resize(static_cast<size_t>(rows(weight, part) * row));
    signs.replace(static_cast<size_t>(first * row), static_cast<size_t>(count * row),
                  reinterpret_cast<const char*>(bits), static_cast<size_t>(count * row));
    return {};
  }
  Status put_alpha(WeightId weight, int part, int level, const float* alpha) override {
    MutexLock lock(notes_->mutex);
    notes_->alphas[{weight, part, level}].assign(alpha, alpha + rows(weight, part));
    return {};
  }
  Status put_dense_rows(WeightId weight, int part, int64_t first, int64_t count,
                        const uint16_t* values) override {
    MutexLock lock(notes_->mutex);
    const int64_t columns = spec(weight).columns;
    std::copy(values, values + count * columns,
              notes_->dense.at({weight, part}).begin() + first * columns);
    return {};
  }
  Status put_low_rank(WeightId, int, float, const float*, const float*) override { return {}; }
  void alias_weight(WeightId to, WeightId from) override { notes_->aliases.emplace_back(to, from); }
  Status populate(const std::function<Status()>& after_each) override {
    for (int page = 0; page < 3; ++page) {
      EXPECT_TRUE(notes_->signs.empty());
      ++notes_->populated;
      if (notes_->cancelled_after_a_page != nullptr) *notes_->cancelled_after_a_page = true;
      RETURN_IF_ERROR(after_each());
    }
    return {};
  }
  Status finish(const std::atomic<bool>*) override {
    ++notes_->finished;
    return {};
  }
  size_t bytes() const override { return 12345; }
  int64_t dense_rows(WeightId) const override { return 0; }

 private:
  const WeightSpec& spec(WeightId id) const { return table_.specs[static_cast<size_t>(id)]; }
  int64_t rows(WeightId id, int part) const {
    return spec(id).parts[static_cast<size_t>(part)].rows;
  }
  Notes* notes_;
  const WeightTable& table_;
};

class NotingBackend : public Backend {
 public:
  explicit NotingBackend(const WeightTable& table) : table_(table) {}
  Status declare_weights(const std::vector<WeightSpec>&) override { return {}; }
  Status put_rows(WeightId, int, int64_t, int64_t, const uint16_t*) override { return {}; }
  Result<std::unique_ptr<VariantWeights>> new_variant(const VariantContent& content) override {
    for (const VariantContent::Signs& signs : content.signs)
      notes.levels[signs.weight] = signs.levels;
    for (const VariantContent::Dense& dense : content.dense) {
      const int64_t columns = table_.specs[static_cast<size_t>(dense.weight)].columns;
      notes.dense_rows[{dense.weight, dense.part}] = dense.rows;
      notes.dense[{dense.weight, dense.part}].resize(static_cast<size_t>(dense.rows * columns));
    }
    return std::unique_ptr<VariantWeights>(std::make_unique<NotingWeights>(&notes, table_));
  }
  Result<size_t> variant_bytes(const VariantContent&) const override { return size_t{12345}; }
  Status finish_weights() override { return {}; }
  Result<Buffer> allocate(size_t bytes) override { return Buffer::cpu(bytes); }
  Status upload(void*, const void*, size_t) override { return {}; }
  std::optional<int64_t> device_free_bytes() const override { return std::nullopt; }
  Status health() const override { return {}; }
  Ops& ops() override {
    CHECK(false, "no ops here");
    return *static_cast<Ops*>(nullptr);
  }
  size_t weight_bytes() const override { return 0; }
  std::string description() const override { return "notes"; }
  Notes notes;

 private:
  const WeightTable& table_;
};

class LoaderTest : public ::testing::Test {
 protected:
  void open(const std::string& base) {
    auto checkpoint = Checkpoint::open(golden("models/" + base));
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
    auto digest = base_digest(**checkpoint);
    ASSERT_TRUE(digest.ok());
    options_.base_digest = *digest;
    options_.architecture = "LlamaForCausalLM";
    options_.threads = 3;
    table_ = make_weight_table((*checkpoint)->config());
    backend_ = std::make_unique<NotingBackend>(table_);
  }
  Result<VariantRef> load(const std::string& path) {
    return load_variant("v", path, table_, *backend_, options_);
  }
  // Every tensor of the file arrived at its place.
  void expect_all(const RawFile& raw) {
    Notes& notes = backend_->notes;
    for (const auto& [name, tensor] : raw.tensors) {
      const TensorPlace place = place_of_tensor(name);
      const WeightTable::Place& at = table_.by_name.at(place.weight);
      const Notes::Key key{at.weight, at.part, place.level};
      if (place.role == TensorRole::kSign) {
        EXPECT_EQ(notes.signs.at(key), tensor.bytes) << name;
      } else if (place.role == TensorRole::kAlpha) {
        const auto* alpha = reinterpret_cast<const float*>(tensor.bytes.data());
        const std::vector<float>& found = notes.alphas.at(key);
        for (size_t i = 0; i < found.size(); ++i)
          EXPECT_EQ(found[i], alpha[tensor.bytes.size() == 4 ? 0 : i]) << name;
      } else {
        const std::vector<uint16_t>& found = notes.dense.at({at.weight, at.part});
        ASSERT_EQ(found.size() * 2, tensor.bytes.size()) << name;
        EXPECT_EQ(memcmp(found.data(), tensor.bytes.data(), tensor.bytes.size()), 0) << name;
        EXPECT_EQ((notes.dense_rows.at({at.weight, at.part})), tensor.shape[0]) << name;
      }
    }
    EXPECT_EQ(notes.finished, 1);
  }

  WeightTable table_;
  std::unique_ptr<NotingBackend> backend_;
  VariantLoadOptions options_;
};

TEST_F(LoaderTest, EveryTensorArrives) {
  for (const char* kind : {"matrix-1", "matrix-2", "row-1", "row-2"}) {
    SCOPED_TRACE(kind);
    open("awkward");
    const std::string path = golden("variants/awkward/awkward-") + kind + ".delta.safetensors";
    auto variant = load(path);
    ASSERT_TRUE(variant.ok()) << variant.status().message();
    const RawFile raw = testing::read_raw(path);
    expect_all(raw);
    EXPECT_EQ((*variant)->name, "v");
    EXPECT_EQ((*variant)->digest, raw.metadata.at("digest"));
    EXPECT_EQ((*variant)->bytes, 12345u);
    EXPECT_EQ((*variant)->vocab, 509);
  }
}

TEST_F(LoaderTest, ATiedHeadFollowsNewEmbeddings) {
  open("llama");
  auto variant = load(golden("variants/llama/llama-row-1.delta.safetensors"));
  ASSERT_TRUE(variant.ok()) << variant.status().message();
  EXPECT_THAT(backend_->notes.aliases,
              ::testing::ElementsAre(std::pair(table_.head, table_.embedding)));
}

TEST_F(LoaderTest, AHeadOfItsOwnAndMoreTokens) {
  open("llama");
  const std::string path = golden("variants/llama_vocab/llama_vocab-row-1.delta.safetensors");
  auto variant = load(path);
  ASSERT_TRUE(variant.ok()) << variant.status().message();
  expect_all(testing::read_raw(path));
  EXPECT_EQ((*variant)->vocab, 518);
  EXPECT_TRUE(backend_->notes.aliases.empty());
}

TEST_F(LoaderTest, FoldersWithOneVariant) {
  open("llama");
  TempFolder folder;
  EXPECT_EQ(load(folder.file("none")).status().code(), Code::kNotFound);
  EXPECT_THAT(load(folder.path()).status().message(), HasSubstr("found 0"));
  folder.write("adapter_config.json", "{}");
  EXPECT_THAT(load(folder.path()).status().message(), HasSubstr("peft_type is null"));
  const std::string content =
      testing::slurp(golden("variants/llama/llama-row-1.delta.safetensors"));
  folder.write("a.delta.safetensors", content);
  EXPECT_TRUE(load(folder.path()).ok());
  folder.write("b.delta.safetensors", content);
  EXPECT_THAT(load(folder.path()).status().message(),
              HasSubstr("found 2: a.delta.safetensors b.delta.safetensors"));
}

TEST_F(LoaderTest, RefusesAnotherBase) {
  open("llama");
  options_.base_digest = std::string(32, '0');
  const Status status = load(golden("variants/llama/llama-row-1.delta.safetensors")).status();
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("made for another base"));
}

TEST_F(LoaderTest, LeavesNothingWhenCancelledOrRefused) {
  open("llama");
  const std::string path = golden("variants/llama/llama-row-1.delta.safetensors");
  ASSERT_TRUE(load(path).ok());
  EXPECT_EQ(backend_->notes.finished, 1);
  std::atomic<bool> cancelled{true};
  options_.cancelled = &cancelled;
  EXPECT_EQ(load(path).status().code(), Code::kCancelled);
  options_.cancelled = nullptr;
  TempFolder folder;
  std::string content = testing::slurp(path);
  content.back() = static_cast<char>(~content.back());
  EXPECT_FALSE(load(folder.write("damaged.delta.safetensors", content)).ok());
  EXPECT_EQ(backend_->notes.finished, 1);
  EXPECT_EQ(backend_->notes.alive, 0);
}

TEST_F(LoaderTest, TakesUpMemoryFirstWhereLoadsAreCapped) {
  open("llama");
  const std::string path = golden("variants/llama/llama-row-1.delta.safetensors");
  ASSERT_TRUE(load(path).ok());
  EXPECT_EQ(backend_->notes.populated, 0);
  backend_->notes.signs.clear();

  RateLimit rate(int64_t{1} << 40);
  options_.rate = &rate;
  ASSERT_TRUE(load(path).ok());
  EXPECT_EQ(backend_->notes.populated, 3);
  backend_->notes.signs.clear();

  std::atomic<bool> cancelled{false};
  options_.cancelled = backend_->notes.cancelled_after_a_page = &cancelled;
  EXPECT_EQ(load(path).status().code(), Code::kCancelled);
  EXPECT_EQ(backend_->notes.populated, 4);
  EXPECT_EQ(backend_->notes.alive, 0);
}

TEST_F(LoaderTest, KnowsTheSizeFromTheHeader) {
  open("awkward");
  const std::string path = golden("variants/awkward/awkward-row-2.delta.safetensors");
  EXPECT_EQ(measure_variant(path, table_, *backend_, options_)->bytes, 12345);
  ASSERT_TRUE(load(path).ok());
  for (const auto& [weight, levels] : backend_->notes.levels) {
    EXPECT_EQ(levels, 2);
    EXPECT_EQ(table_.specs[static_cast<size_t>(weight)].kind, WeightKind::kMatrix);
  }
  EXPECT_EQ(backend_->notes.levels.size(), 4 * table_.layers.size());
  options_.base_digest = std::string(32, '0');
  EXPECT_THAT(measure_variant(path, table_, *backend_, options_).status().message(),
              HasSubstr("made for another base"));
}

}  // namespace
}  // namespace deltad
