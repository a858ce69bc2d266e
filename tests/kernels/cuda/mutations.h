// The mutation test of a kernel on the emulator: every barrier, wait and bound check that a run
// reaches is switched off in turn (waits are also weakened), and that must show: as a fault, or as
// another output.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <set>

#include "tests/support/cuda_on_cpu/launch.h"

namespace deltad::cuda {

// run(options, report*) runs the kernels and returns their output, which is comparable. `sites`:
// how many there are.
template <class Run>
void expect_mutations_caught(size_t sites, Run run) {
  emulator::Report report;
  const auto right = run(emulator::Options{}, &report);
  ASSERT_TRUE(report.ok()) << report.text();
  const std::set<emulator::SiteId> reached(report.sites.begin(), report.sites.end());
  EXPECT_EQ(reached.size(), sites);
  const auto caught = [&](emulator::Options mutation) {
    for (const emulator::Order order : {emulator::Order::kFifo, emulator::Order::kLifo}) {
      mutation.order = order;
      emulator::Report wrong;
      if (run(mutation, &wrong) != right || !wrong.ok()) return true;
    }
    return false;
  };
  for (const emulator::SiteId id : reached) {
    const emulator::Site& site = emulator::SiteTable::instance().at(id);
    EXPECT_TRUE(caught({.off = {id}})) << site.text();
    if (site.kind == emulator::SiteKind::kWait) {
      EXPECT_TRUE(caught({.weaker = {id}})) << "weaker " << site.text();
    }
  }
}

}  // namespace deltad::cuda
