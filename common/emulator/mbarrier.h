// mbarrier objects and the fences that go with asynchronous copies.
#pragma once

#include <cstdint>

#include "common/emulator/lane.h"

namespace emu {

void mbarrier_init(uint64_t* bar, int count, SourceLocation where);
void mbarrier_inval(uint64_t* bar, SourceLocation where);
void mbarrier_arrive(uint64_t* bar, const char* operation, SourceLocation where);
void mbarrier_arrive_cluster(uint64_t* bar, int cta, SourceLocation where);
void mbarrier_expect_tx(uint64_t* bar, int bytes, const char* operation, SourceLocation where);
void mbarrier_complete_tx(uint64_t* bar, int bytes, SourceLocation where);
bool mbarrier_test_wait(uint64_t* bar, int parity, const char* operation, SourceLocation where);
void mbarrier_wait(uint64_t* bar, int parity, SourceLocation where);
void fence_mbarrier_init();
void fence_proxy_async();

}  // namespace emu
