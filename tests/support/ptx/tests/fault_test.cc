// What the interpreter refuses, and how it says so: kernels written in PTX by hand.
#include <gmock/gmock.h>

#include <array>

#include "tests/support/ptx/tests/ptx_run.h"
#include "tests/support/ptx/tests/written_kernel.h"

namespace deltad::ptx {
namespace {

using testing::HasSubstr;

class Faults : public testing::Test {
 protected:
  std::string run(const std::string& body, uint32_t threads = 32, const Options& options = {}) {
    auto m = Module::load(written_kernel(body));
    if (!m.ok()) return m.status().message();
    std::fill(data_.begin(), data_.end(), 0);
    Memory memory;
    memory.add("data", std::span<uint32_t>(data_));
    Options o = options;
    o.max_steps = 100'000;
    return message(m.value()->run("k", {}, {threads, 1, 1}, 0, params(data_.data()), memory, o));
  }
  alignas(16) std::array<uint32_t, 64> data_;
};

TEST_F(Faults, AnUnknownInstructionIsNamedBeforeAnythingRuns) {
  const std::string m = run("st.global.u32 [%data], %t;\nmagic.f32 %r1, %r2;\nret;", 1);
  EXPECT_THAT(m, HasSubstr("'magic.f32 %r1, %r2'"));
  EXPECT_THAT(m, HasSubstr("does not know magic"));
  EXPECT_THAT(m, HasSubstr("PTX line 15"));
  EXPECT_THAT(run("add.sat.s32 %r1, %r2, %r3;\nret;"), HasSubstr("'add.sat.s32 %r1, %r2, %r3'"));
  EXPECT_THAT(run("mov.u32 %r1, %clock;\nret;"), HasSubstr("special register %clock"));
  EXPECT_THAT(run("bra nowhere;\nret;"), HasSubstr("label nowhere"));
  EXPECT_THAT(run("mov.u32 %r1, lost;\nret;"), HasSubstr("symbol lost"));
  EXPECT_THAT(run("add.u64 %rd1, %rd2, %r1;\nret;"), HasSubstr("another width"));
}

TEST_F(Faults, BadTextIsRefusedWithItsLine) {
  EXPECT_THAT(run(".huge %x;\nret;"), HasSubstr("directive is not known: .huge"));
  EXPECT_THAT(run("mov.u32 %r1, 1"), HasSubstr("PTX line"));
  auto m = Module::load(".version 9.0\n.func f()\n{ ret; }\n");
  EXPECT_THAT(m.status().message(), HasSubstr("line 2: '.func' is not known"));
}

TEST_F(Faults, AccessesAreChecked) {
  EXPECT_THAT(run("st.global.u32 [%data+1], %t;\nret;", 1), HasSubstr("misaligned"));
  EXPECT_THAT(run("ld.global.v2.u32 {%r1, %r2}, [%data+252];\nret;", 1), HasSubstr("misaligned"));
  EXPECT_THAT(run("ld.global.v2.u32 {%r1, %r2}, [%data+256];\nret;", 1),
              HasSubstr("byte 256 of data"));
  EXPECT_THAT(run("ld.shared.u32 %r1, [buffer+256];\nret;", 1),
              HasSubstr("shared memory has 256 bytes"));
  EXPECT_THAT(run("ld.param.u64 %rd1, [k_param_0+8];\nret;", 1),
              HasSubstr("the parameters have 8"));
  EXPECT_THAT(run("st.global.u32 [%data], %t;\nret;", 2), HasSubstr("two lanes store"));
}

TEST_F(Faults, ATrapAndAnEndlessLoopAreFaults) {
  EXPECT_THAT(run("trap;\nret;"), HasSubstr("trapped"));
  EXPECT_THAT(run("again:\nbra again;\nret;"), HasSubstr("does not end"));
}

// One warp waits at a barrier that the other never reaches, because it waits at another.
TEST_F(Faults, ADeadlockNamesAThreadThatWaits) {
  const std::string m =
      run("setp.lt.u32 %p1, %t, 32;\n@%p1 bra first;\nbar.sync 1, 64;\nret;\n"
          "first:\nbar.sync 2, 64;\nret;",
          64);
  EXPECT_THAT(m, HasSubstr("deadlock"));
  EXPECT_THAT(m, HasSubstr("bar.sync 2, 64"));
}

// Warps that end no longer count at the block's barrier.
TEST_F(Faults, ABarrierWaitsForTheWarpsThatAreLeft) {
  EXPECT_EQ(run("setp.lt.u32 %p1, %t, 32;\n@%p1 ret;\nbar.sync 0;\nret;", 96), "no fault");
}

TEST_F(Faults, LanesOfABarrierMustArriveTogether) {
  const std::string m =
      run("setp.lt.u32 %p1, %t, 16;\n@%p1 bra first;\nbar.sync 0;\nret;\n"
          "first:\nbar.sync 0;\nret;");
  EXPECT_THAT(m, HasSubstr("wait for others that never arrive"));
  EXPECT_THAT(m, HasSubstr("bar.sync 0"));
}

TEST_F(Faults, BarriersAreCounted) {
  EXPECT_THAT(run("bar.sync 16;\nret;"), HasSubstr("number 16"));
  EXPECT_THAT(run("bar.sync 1, 33;\nret;"), HasSubstr("multiple of 32"));
  EXPECT_THAT(
      run("shr.u32 %r1, %t, 5;\nadd.u32 %r1, %r1, 2;\nshl.b32 %r1, %r1, 5;\nbar.sync 1, %r1;\nret;",
          64),
      HasSubstr("other warps came to this barrier with count 64"));
}

TEST_F(Faults, AShuffleReadsOnlyLanesThatTakePart) {
  const std::string body =
      "setp.ge.u32 %p1, %t, 16;\n@%p1 ret;\n"
      "shfl.sync.idx.b32 %r1|%p2, %t, 20, 31, 0xffff;\nret;";
  EXPECT_THAT(run(body), HasSubstr("reads lane 20"));
  EXPECT_THAT(run("shfl.sync.idx.b32 %r1|%p2, %t, 0, 31, 1;\nret;"),
              HasSubstr("not in its own mask"));
}

TEST_F(Faults, MBarriersMustExistAndCount) {
  EXPECT_THAT(run("mbarrier.arrive.shared.b64 %rd1, [buffer];\nret;", 1),
              HasSubstr("no mbarrier at shared address 0"));
  EXPECT_THAT(run("mbarrier.init.shared.b64 [buffer], 0;\nret;", 1), HasSubstr("a count of 0"));
  EXPECT_THAT(
      run("mbarrier.init.shared.b64 [buffer], 1;\nmbarrier.init.shared.b64 [buffer], 1;\nret;", 1),
      HasSubstr("an mbarrier already"));
  EXPECT_THAT(run("mbarrier.init.shared.b64 [buffer], 2;\nmbarrier.arrive.shared.b64 %rd1, "
                  "[buffer], 3;\nret;",
                  1),
              HasSubstr("more arrivals"));
  EXPECT_THAT(run("mbarrier.init.shared.b64 [buffer], 1;\nagain:\n"
                  "mbarrier.try_wait.parity.shared.b64 %p1, [buffer], 0;\n@!%p1 bra again;\nret;",
                  1),
              HasSubstr("deadlock"));
}

TEST_F(Faults, BulkCopiesAreChecked) {
  const std::string init = "mbarrier.init.shared.b64 [buffer], 1;\nadd.u64 %rd1, %data, 4;\n";
  const std::string copy = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes ";
  EXPECT_THAT(run(init + copy + "[buffer+16], [%rd1], 16, [buffer];\nret;", 1),
              HasSubstr("multiples of 16"));
  EXPECT_THAT(run(init + copy + "[buffer+16], [%data], 32, [buffer+8];\nret;", 1),
              HasSubstr("no mbarrier"));
  EXPECT_THAT(run(init + copy + "[buffer+16], [%data], 32, [buffer];\nret;", 1),
              HasSubstr("in flight"));
  EXPECT_THAT(run("st.shared.u32 [buffer], 1;\n"
                  "cp.async.bulk.global.shared::cta.bulk_group [%data], [buffer], 16;\nret;",
                  1),
              HasSubstr("no fence.proxy.async"));
}

// As into a register that is wider than the value.
TEST_F(Faults, SignedLoadsExtendTheSign) {
  EXPECT_EQ(run("st.global.s32 [%data], -5;\nld.global.s32 %rd1, [%data];\n"
                "ld.global.u32 %rd2, [%data];\nst.global.u64 [%data+8], %rd1;\n"
                "st.global.u64 [%data+16], %rd2;\nret;",
                1),
            "no fault");
  EXPECT_EQ(data_[2], static_cast<uint32_t>(-5));
  EXPECT_EQ(data_[3], ~0U);
  EXPECT_EQ(data_[5], 0U);
}

// What lies above the source's type does not count.
TEST_F(Faults, ConversionsTakeTheLowerBitsOfAWiderRegister) {
  EXPECT_EQ(run("mov.u64 %rd1, 0x7fffffff2;\ncvt.s64.s32 %rd2, %rd1;\n"
                "cvt.u64.u32 %rd3, %rd1;\ncvt.s32.s8 %r1, %rd1;\n"
                "st.global.u64 [%data], %rd2;\nst.global.u64 [%data+8], %rd3;\n"
                "st.global.u32 [%data+16], %r1;\nret;",
                1),
            "no fault");
  EXPECT_EQ(data_[0], static_cast<uint32_t>(-14));
  EXPECT_EQ(data_[1], ~0U);
  EXPECT_EQ(data_[2], static_cast<uint32_t>(-14));
  EXPECT_EQ(data_[3], 0U);
  EXPECT_EQ(data_[4], static_cast<uint32_t>(-14));
}

TEST_F(Faults, AddressesOf32BitsWrapAround) {
  EXPECT_EQ(run("mov.u32 %r1, -40;\nst.shared.u32 [%r1+128], 7;\nld.shared.u32 %r2, [buffer+88];\n"
                "st.global.u32 [%data], %r2;\nret;",
                1),
            "no fault");
  EXPECT_EQ(data_[0], 7U);
}

// Lanes spin until another lane of their warp has stored.
TEST_F(Faults, LanesThatSpinDoNotStopTheOthers) {
  EXPECT_EQ(run("setp.eq.u32 %p1, %t, 0;\n@%p1 bra store;\nagain:\nld.global.u32 %r1, [%data];\n"
                "setp.eq.u32 %p2, %r1, 0;\n@%p2 bra again;\nret;\n"
                "store:\nst.global.u32 [%data], 7;\nret;"),
            "no fault");
}

}  // namespace
}  // namespace deltad::ptx
