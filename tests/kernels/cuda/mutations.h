// Mutation of a kernel without building it again: each barrier, wait, bound check and memory order
// that a run reaches is switched off (waits are weakened too), and the run must show it, by a fault
// or by another result. What no run can show is redundant, and goes from the kernel.
#pragma once

#include <gtest/gtest.h>

#include <set>

#include "tests/support/cuda_on_cpu/launch.h"

namespace deltad::cuda {

// run(options, report) makes all launches with `options` and returns what they gave, comparable
// with ==; *report has their sites and the first faults.
template <class Run>
void expect_every_site_matters(Run run) {
  using emulator::Options;
  using emulator::Order;
  emulator::Report right;
  const auto expected = run(Options(), &right);
  ASSERT_TRUE(right.ok()) << right.text();
  ASSERT_FALSE(right.sites.empty());
  emulator::Report again;
  ASSERT_TRUE(run(Options(), &again) == expected) << "not the same twice, or poison in the result";
  const auto caught = [&](Options mutation) {
    for (Order order : {Order::kFifo, Order::kLifo}) {
      mutation.order = order;
      mutation.resident_blocks = 2;
      emulator::Report report;
      const auto got = run(mutation, &report);
      if (!report.ok() || !(got == expected)) return true;
    }
    return false;
  };
  const std::set<emulator::SiteId> sites(right.sites.begin(), right.sites.end());
  for (emulator::SiteId id : sites) {
    const emulator::Site& site = emulator::SiteTable::instance().at(id);
    EXPECT_TRUE(caught({.off = {id}})) << site.text();
    if (site.kind == emulator::SiteKind::kWait) {
      EXPECT_TRUE(caught({.weaker = {id}})) << "weaker " << site.text();
    }
  }
}

}  // namespace deltad::cuda
