// Loading large files, and files that change, shrink, go away or are replaced while they are read:
// a variant is one version of its file, or there is none and nothing of it is left.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <functional>
#include <thread>

#include "base/mutex.h"
#include "delta/delta_reader.h"
#include "delta/loader.h"
#include "synthetic_variant.h"
#include "tests/support/temp_folder.h"

namespace deltad {
namespace {

using ::testing::HasSubstr;
using testing::RawFile;
using testing::TempFolder;

int64_t open_files() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/fd"),
                       std::filesystem::directory_iterator());
}

// Puts the tensors together again. `meanwhile` is called once, when the first rows arrive.
class Collector : public DeltaSink {
 public:
  explicit Collector(const RawFile& expected) : raw_(expected) {
    for (auto& [name, tensor] : raw_.tensors) tensor.bytes.assign(tensor.bytes.size(), 0);
  }
  std::function<void()> meanwhile = [] {};

  Status sign_rows(const std::string& weight, int level, int64_t first, int64_t count,
                   const uint8_t* bits) override {
    return put(sign_name(weight, level), first, count, bits);
  }
  Status alpha(const std::string& weight, int level, int64_t count, const float* alpha) override {
    return put(alpha_name(weight, level), 0, count, alpha);
  }
  Status low_rank(const std::string& weight, const AdapterFactors&) override {
    ADD_FAILURE() << weight;
    return {};
  }
  Status dense_rows(const std::string& weight, int64_t first, int64_t count, DType type,
                    const void* values) override {
    EXPECT_EQ(type, DType::kBF16);
    return put(weight, first, count, values);
  }
  const RawFile& raw() const { return raw_; }

 private:
  Status put(const std::string& name, int64_t first, int64_t count, const void* data) {
    MutexLock lock(mutex_);
    if (!std::exchange(called_, true)) meanwhile();
    testing::RawTensor& tensor = raw_.tensors.at(name);
    const int64_t rows = tensor.shape[0];
    const int64_t row = static_cast<int64_t>(tensor.bytes.size()) / rows;
    EXPECT_TRUE(first % kSinkRows == 0 && count > 0 && first + count <= rows) << name;
    EXPECT_TRUE(count % kSinkRows == 0 || first + count == rows) << name;
    std::memcpy(tensor.bytes.data() + first * row, data, static_cast<size_t>(count * row));
    return {};
  }
  RawFile raw_;
  Mutex mutex_;
  bool called_ = false;
};

class ChangingFileTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    const ModelConfig config = testing::synthetic_model();
    versions_ = new std::vector<RawFile>{testing::synthetic_variant(config, 1),
                                         testing::synthetic_variant(config, 2)};
    table_ = new WeightTable(make_weight_table(config));
  }
  static void TearDownTestSuite() {
    delete versions_;
    delete table_;
  }
  void SetUp() override {
    path_ = folder_.file("v.delta.safetensors");
    testing::write_raw(path_, version(0));
  }
  static const RawFile& version(size_t i) { return (*versions_)[i]; }

  Status read(Collector* sink, int threads) {
    const auto delta = DeltaFile::open(path_);
    if (!delta.ok()) return delta.status();
    DeltaReadOptions options;
    options.table = table_;
    options.sink = sink;
    options.threads = threads;
    options.cancelled = &cancelled_;
    return read_delta(*delta, options);
  }
  // What reading says when this happens in its middle.
  std::string says(const std::function<void()>& meanwhile) {
    testing::write_raw(path_, version(0));
    Collector sink(version(0));
    sink.meanwhile = meanwhile;
    const Status status = read(&sink, 2);
    EXPECT_EQ(status.code(), Code::kUnavailable) << status.message();
    EXPECT_THAT(status.message(), HasSubstr(path_));
    return status.message();
  }
  void overwrite(int64_t offset, const std::string& bytes) const {
    const int fd = ::open(path_.c_str(), O_WRONLY | O_CLOEXEC);
    EXPECT_EQ(pwrite(fd, bytes.data(), bytes.size(), offset), static_cast<ssize_t>(bytes.size()));
    ::close(fd);
  }

  static std::vector<RawFile>* versions_;
  static WeightTable* table_;
  TempFolder folder_;
  std::string path_;
  std::atomic<bool> cancelled_{false};
};
std::vector<RawFile>* ChangingFileTest::versions_ = nullptr;
WeightTable* ChangingFileTest::table_ = nullptr;

TEST_F(ChangingFileTest, EveryByteOfLargeTensorsArrives) {
  for (const int threads : {1, 3}) {
    Collector sink(version(0));
    const Status status = read(&sink, threads);
    ASSERT_TRUE(status.ok()) << status.message();
    EXPECT_TRUE(sink.raw().tensors == version(0).tensors);
  }
}

TEST_F(ChangingFileTest, AWriteIsNoticed) {
  const int64_t end = static_cast<int64_t>(std::filesystem::file_size(path_));
  EXPECT_THAT(says([&] { overwrite(end - 1, "x"); }), HasSubstr("was changed while it was read"));
  EXPECT_THAT(says([&] { overwrite(end, "x"); }), HasSubstr("was changed while it was read"));
  // Also where it has been read already, and even if it says nothing new.
  const std::string same = testing::slurp(path_).substr(0, 1);
  EXPECT_THAT(says([&] { overwrite(0, same); }), HasSubstr("written to"));
}

TEST_F(ChangingFileTest, TruncationIsNoticed) {
  for (const off_t left : {off_t{0}, off_t{1000}, off_t{6000000}})
    EXPECT_THAT(says([&] { ASSERT_EQ(truncate(path_.c_str(), left), 0); }),
                HasSubstr("now " + std::to_string(left)));
}

TEST_F(ChangingFileTest, RemovalAndReplacementAreNoticed) {
  EXPECT_THAT(says([&] { ASSERT_EQ(unlink(path_.c_str()), 0); }), HasSubstr("removed"));
  EXPECT_THAT(says([&] { testing::write_raw(path_, version(1)); }), HasSubstr("replaced"));
}

// A write that leaves size and time as they were is for the digest to find.
TEST_F(ChangingFileTest, ASecretWriteIsFoundByTheDigest) {
  Collector sink(version(0));
  sink.meanwhile = [&] {
    struct stat before;
    ASSERT_EQ(stat(path_.c_str(), &before), 0);
    overwrite(before.st_size - 1, "\x7f");
    const timespec times[2] = {before.st_atim, before.st_mtim};
    ASSERT_EQ(utimensat(AT_FDCWD, path_.c_str(), times, 0), 0);
  };
  const Status status = read(&sink, 1);
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("digest"));
}

// A writer that goes on writing one version over the other in place.
TEST_F(ChangingFileTest, NoMixtureIsEverDelivered) {
  std::string contents[2];
  for (size_t i = 0; i < 2; ++i) {
    testing::write_raw(folder_.file("w"), version(i));
    contents[i] = testing::slurp(folder_.file("w"));
  }
  ASSERT_EQ(contents[0].size(), contents[1].size());
  std::atomic<bool> stop{false};
  std::thread writer([&] {
    for (size_t i = 1; !stop; ++i) overwrite(0, contents[i % 2]);
  });
  for (int i = 0; i < 12; ++i) {
    Collector sink(version(0));
    const Status status = read(&sink, 2);
    if (status.ok()) {
      EXPECT_TRUE(sink.raw().tensors == version(0).tensors ||
                  sink.raw().tensors == version(1).tensors);
    }
  }
  stop = true;
  writer.join();
}

TEST_F(ChangingFileTest, ACancelledLoadStopsAndLeavesNothingOpen) {
  const int64_t files = open_files();
  Collector sink(version(0));
  sink.meanwhile = [&] { cancelled_ = true; };
  EXPECT_EQ(read(&sink, 2).code(), Code::kCancelled);
  EXPECT_EQ(open_files(), files);
  EXPECT_FALSE(sink.raw().tensors == version(0).tensors);  // it did not go on to the end
}

TEST_F(ChangingFileTest, ARealBackendTakesWhatTheHeaderPromised) {
  CpuBackendOptions options;
  options.threads = 1;
  auto backend = make_cpu_backend(options);
  ASSERT_TRUE(backend.ok());
  ASSERT_TRUE((*backend)->declare_weights(table_->specs).ok());
  VariantLoadOptions load;
  const auto size = measure_variant(path_, *table_, **backend, load);
  ASSERT_TRUE(size.ok()) << size.status().message();
  load.max_bytes = static_cast<size_t>(size->bytes);
  auto variant = load_variant("v", path_, *table_, **backend, load);
  ASSERT_TRUE(variant.ok()) << variant.status().message();
  EXPECT_EQ((*variant)->bytes, load.max_bytes);
  EXPECT_EQ((*variant)->vocab, 3000);
  load.max_bytes = static_cast<size_t>(size->bytes) - 1;
  variant = load_variant("v", path_, *table_, **backend, load);
  EXPECT_EQ(variant.status().code(), Code::kResourceExhausted);
  EXPECT_THAT(variant.status().message(), HasSubstr(std::to_string(size->bytes)));
}

}  // namespace
}  // namespace deltad
