// Transfers between a user's strided array and native memory, one block of worlds at a time (abi.h: kn_layout).
#pragma once
#include "abi.h"

namespace kn {

// KN_DONE, KN_BAD_LAYOUT or (pack) KN_OUT_OF_RANGE; `native` is the memory of the block and overrides the layout's.
int pack_block(const kn_layout& layout, int64_t block, char* native);
int unpack_block(const kn_layout& layout, int64_t block, char* native);

}  // namespace kn
