// The text form of loop IR: print and parse are exact inverses.
//
//   kernel NAME(@0 x: 4096 bytes align 64, @1 y: 4096 bytes align 64 written) {      # or constant
//     %0 = constant i64 0
//     %1 = constant i64 1024
//     %2 = constant f32x4 [0, 1.5, -2, 1e-7]             # one number per lane, or one for all: constant f32x4 1.5
//     loop parallel %3 from %0 to %1 step 16 {           # serial unroll parallel grid lane; %3 is the counter
//       @2 = alloc private 64 bytes align 64             # or shared
//       %4 = load f32x16 @0[%3] align 4                  # [count %8] may follow; the same for store
//       %5 = mul f32x16 %4, %4                           # a scalar operation: its name and the type of the RESULT
//       %6 = shuffle f32x4 %4 [0, 1, -1, 3]              # one or two vectors
//       %7 = extract f32 %4 lane 3
//       %8 = insert f32x16 %4, %7 lane 0
//       %9 = splat f32x16 %7
//       %10 = fold f32 add %4
//       %11 = inst i32x16 dot4.u8s8.i32x16 %12, %13, %14
//       %15 = gather f32x8 @0[%16]
//       scatter @1[%16] %15
//       store @1[%3] %5 align 4 count %17
//       guard index %18, %3                              # index, update or finite: see GuardCode
//       branch %18 { ... } else { ... }                  # else may be left out
//       barrier
//       %19 = lane_id i64
//       %20 = wave_shuffle f32 %7 from %19                   # the %7 of that lane
//       copy @2[%21] from @0[%22] 16 bytes
//       commit copies                                    # or products
//       wait copies 1
//     wait kernels 0                                   # the earlier ones have ended: see verify.h
//       %23 = product f32x64 ROW %24, @2[%25], @3[%26]
//     }
//   }
//   kernel NAME(...) aliased { ... }                     # written params may share memory with others
//   kernel NAME(...) instances 2 { ... }                 # run twice by a launch, on other buffers
//   func dot2(%0: i32, %1: i8x2, %2: i8x2) -> i32 { %3 = ... return %9 }
//
// Values are numbered from 0 without gaps. Names that are not [A-Za-z0-9_.]+ are written in double quotes. # starts a
// comment.
#pragma once

#include "base/place.h"
#include "kernel/loop/loop.h"

namespace lumen::loop {

std::string print(const Kernel& k);
std::string without_name(const Kernel& k, const std::string& printed);  // what follows the name in a kernel's text
std::string print(const Function& f);
std::string print(const Instr& instr);  // one instruction with its regions, for messages
Kernel parse_kernel(SourceRef source);  // Error with the place when the text or the kernel is wrong
Function parse_function(SourceRef source);

}  // namespace lumen::loop
