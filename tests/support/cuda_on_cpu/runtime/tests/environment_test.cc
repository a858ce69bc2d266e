// What the environment says, and the report that a program leaves: this program runs itself.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>
#include <string>

namespace deltad::emulated_gpu {
namespace {

// Run by the others, with an environment: allocates, copies without a wait, and leaks an event.
TEST(EnvironmentChild, DISABLED_Run) {
  int devices = 0;
  ASSERT_EQ(cudaGetDeviceCount(&devices), cudaSuccess);  // call 0
  EXPECT_EQ(devices, 2);
  void* x = nullptr;
  EXPECT_EQ(cudaMalloc(&x, 1001), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaMalloc(&x, 1000),
            std::getenv("CHILD_FAILS") == nullptr ? cudaSuccess : cudaErrorUnknown);
  cudaStream_t stream = nullptr;
  cudaEvent_t event = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
  ASSERT_EQ(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), cudaSuccess);
  if (x != nullptr) {
    EXPECT_EQ(cudaMemsetAsync(x, 0, 1000, stream), cudaSuccess);
    EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
    EXPECT_EQ(cudaFree(x), cudaSuccess);
  }
  EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
}

// The report of the child, run with these settings beside those that it expects.
std::string run(const std::string& settings, const std::string& more = "") {
  const std::string file = testing::TempDir() + "emulated_gpu_report";
  std::remove(file.c_str());
  const std::string self = std::filesystem::read_symlink("/proc/self/exe").string();
  const std::string command =
      "DELTAD_EMULATED_GPU=devices=2,memory=1000,idle_ms=0" + settings +
      " DELTAD_EMULATED_GPU_REPORT=" + file + " " + more + " " + self +
      " --gtest_also_run_disabled_tests --gtest_filter=EnvironmentChild.* > /dev/null";
  EXPECT_EQ(std::system(command.c_str()), 0);
  std::ostringstream text;
  text << std::ifstream(file).rdbuf();
  return text.str();
}

TEST(Environment, SetsUpAndReports) {
  const std::string report = run(",order=random,seed=3");
  EXPECT_EQ(report.find("found"), std::string::npos) << report;
  EXPECT_NE(report.find("leak event made at"), std::string::npos) << report;
  EXPECT_NE(report.find("call cudaMalloc 0x"), std::string::npos) << report;
  EXPECT_NE(report.find("site cudaStreamSynchronize 0x"), std::string::npos) << report;
}

TEST(Environment, InjectsFailures) { run(",fail=2:999", "CHILD_FAILS=1"); }

// The site's key is the same in another run of the program.
TEST(Environment, SwitchesSitesOff) {
  const std::string first = run(",order=latest");
  std::smatch key;
  ASSERT_TRUE(std::regex_search(first, key, std::regex("site cudaStreamSynchronize (\\S+)")));
  std::string off = key[1];
  for (char& c : off) c = c == ',' ? '+' : c;
  const std::string second = run(",order=latest,off=" + off);
  EXPECT_NE(second.find("found freed memory"), std::string::npos) << second;
}

}  // namespace
}  // namespace deltad::emulated_gpu
