# Kernels with one seeded bug each: made from the real sources by one replacement, so that they stay what
# they are when a kernel changes. A text that is not found, or not as often as stated, fails the build.
#
#   broken(NAME KERNEL SENTENCE TEXT REPLACEMENT [NTH n OF m]
#     [RIGHT inputs...] [RIGHT_EARLY | WRONG_EARLY] [STOPS words] [FOUND words line...] [COUNTED counter] [FP16])
#
# SENTENCE: what is wrong. TEXT occurs once, or m times and the n-th one is replaced; REPLACEMENT has as many
# lines, so that the others stay where they are. The rest is what each check must say; tests hold every bug to
# all of it, in both directions:
#
#   RIGHT        inputs on which the numbers are right (threads in the emulator's own order, copies as late as
#                they may come), or `all`; on all other inputs they are wrong
#   RIGHT_EARLY  on ordinary inputs they are right if copies come early instead; WRONG_EARLY: then they are wrong, or
#                there are none
#   STOPS        the numbers are not wrong, there are none: the launch ends with these words, in every build
#                ("words | words": with one of them)
#   FOUND        the checked build reports it: words of its report ("words | words" if the order of threads decides
#                which), and texts of the source lines that it names. Without FOUND and STOPS it has nothing to report
#   COUNTED      a counter of the checked build that is half as large again as the real kernel's, or more
#   FP16         all of this in fp16; otherwise in bf16
#
# build/<preset>/bin/broken runs them; scripts/run.sh --broken NAME shows what each check says.

# ---- 01 ------------------------------------------------------------------------------------------
broken(01_transposed_scores 01_naive
  "S is stored transposed."
  "query) * seq_len + key] = acc_s" "key) * seq_len + query] = acc_s"
  RIGHT tiny)
broken(01_no_scale 01_naive
  "Scores are not multiplied by 1/sqrt(head_dim)."
  "= acc_s * scale;" "= acc_s;"
  RIGHT dominant_key equal_keys tiny)
broken(01_no_row_max 01_naive
  "The row's maximum is not subtracted before the exponential."
  "expf(gS[key] - row_max)" "expf(gS[key])"
  RIGHT normal dominant_key equal_keys increasing_max tiny one_hot_v)
broken(01_off_by_one 01_naive
  "Normalising begins with the second key."
  "key = 0; key < seq_len; key++) gS[key] *= inverse_sum" "key = 1; key < seq_len; key++) gS[key] *= inverse_sum"
  RIGHT large dominant_key increasing_max)
broken(01_sum_in_16_bits 01_naive
  "The sum over keys is rounded to 16 bits after every step."
  "acc_o = fmaf(gP[key], ptx::to_float(gV[size_t(key) * kHeadDim]), acc_o);"
  "acc_o = ptx::to_float(ptx::from_float<T>(fmaf(gP[key], ptx::to_float(gV[size_t(key) * kHeadDim]), acc_o)));"
  RIGHT large dominant_key increasing_max one_hot_v)
broken(01_rows_across_lanes 01_naive
  "Neighbouring lanes take neighbouring rows of O instead of columns: uncoalesced."
  "const int column = blockIdx.x * Config::kTile + threadIdx.x;\n  const int query = blockIdx.y * Config::kTile + threadIdx.y;"
  "const int column = blockIdx.x * Config::kTile + threadIdx.y;\n  const int query = blockIdx.y * Config::kTile + threadIdx.x;"
  RIGHT all
  COUNTED global_sectors)

# ---- 02 ------------------------------------------------------------------------------------------
broken(02_no_barrier_before_load 02_online_softmax
  "No barrier before the next tile overwrites the one that slow warps still read."
  "__syncthreads();" "" NTH 1 OF 2
  FOUND "a __syncthreads() between" "smem.sK[i / kHeadDim]")
broken(02_no_barrier_after_load 02_online_softmax
  "No barrier between loading a tile and reading it."
  "__syncthreads();" "" NTH 2 OF 2
  FOUND "a __syncthreads() between" "smem.sK[i / kHeadDim]")
broken(02_barrier_of_some_warps 02_online_softmax
  "A barrier in a branch that one warp does not take."
  "__syncthreads();" "if (warp_idx > 0) __syncthreads();" NTH 2 OF 2
  FOUND "a __syncthreads() between" "smem.sK[i / kHeadDim]")
broken(02_barrier_of_some_lanes 02_online_softmax
  "A barrier in a branch that half of each warp takes."
  "__syncthreads();" "if (lane_idx < 16) __syncthreads();" NTH 2 OF 2
  STOPS "deadlock"
  FOUND "a __syncthreads() between" "smem.sK[i / kHeadDim]")
broken(02_wrong_barrier_count 02_online_softmax
  "A named barrier of one warp waits for 64 threads."
  "__syncwarp();" "ptx::barrier_sync(1 + warp_idx, 64);"
  STOPS "deadlock")
broken(02_no_syncwarp 02_online_softmax
  "No __syncwarp() between lanes that write P and lanes that read it."
  "__syncwarp();" ""
  FOUND "a __syncwarp() between" "[lane_idx] = p" "const float p = smem.sP")
broken(02_flipped_index 02_online_softmax
  "Neighbouring keys' weights are exchanged."
  "smem.sP[first_row + row][key]" "smem.sP[first_row + row][key ^ 1]"
  RIGHT equal_keys tiny)
broken(02_unwritten_row 02_online_softmax
  "A warp's first row of O is never written."
  "for (int row = 0; row < C::kRows; row++) {\n    const float inverse_sum"
  "for (int row = 1; row < C::kRows; row++) {\n    const float inverse_sum")
broken(02_no_rescale 02_online_softmax
  "O is not rescaled when a tile raises the maximum."
  "acc_o[row][c] *= rescale;" ";"
  RIGHT equal_keys tiny)
broken(02_sum_not_rescaled 02_online_softmax
  "The row's sum is not rescaled when a tile raises the maximum."
  "fmaf(row_sum[row], rescale, warp_sum(p))" "row_sum[row] + warp_sum(p)"
  RIGHT equal_keys tiny)
broken(02_no_row_max 02_online_softmax
  "The maximum is never updated: exponentials of the scores themselves."
  "fmaxf(row_max[row], warp_max(score))" "0.0f"
  RIGHT normal dominant_key equal_keys increasing_max tiny one_hot_v)
broken(02_scaled_twice 02_online_softmax
  "Scores are multiplied by 1/sqrt(head_dim) a second time in the exponent."
  "expf(score - new_max)" "expf((score - new_max) * scale)"
  RIGHT equal_keys tiny)
broken(02_sum_of_half_a_warp 02_online_softmax
  "The sum's reduction stops one exchange short: even and odd lanes have sums of their own."
  "distance > 0; distance /= 2) {\n    value += " "distance > 1; distance /= 2) {\n    value += ")
broken(02_last_tile_missing 02_online_softmax
  "The last tile of keys is left out."
  "n_block < seq_len / C::kBlockN" "n_block < seq_len / C::kBlockN - 1"
  RIGHT dominant_key)
broken(02_keys_of_the_first_head 02_online_softmax
  "Every head reads the first head's keys."
  "gK = k + head * seq_len * kHeadDim" "gK = k"
  RIGHT equal_keys tiny)
broken(02_unwritten_tail 02_online_softmax
  "The last key of each tile is not loaded."
  "i < C::kBlockN * kHeadDim; i += C::kThreads" "i < (C::kBlockN - 1) * kHeadDim; i += C::kThreads"
  FOUND "read of memory that nothing has written")
broken(02_overlapping_tiles 02_online_softmax
  "Two CTAs write the same rows of O, and half of the rows has nobody."
  "m_block = blockIdx.x" "m_block = blockIdx.x / 2"
  FOUND "Let each write its own part")
broken(02_no_padding 02_online_softmax
  "K's rows have no padding: 32 lanes meet in one bank."
  "kPad = 2" "kPad = 0"
  RIGHT all
  COUNTED shared_wavefronts)

# ---- 03 ------------------------------------------------------------------------------------------
broken(03_no_barrier_after_k 03_register_tiling
  "No barrier between loading K and reading it."
  "__syncthreads();" "" NTH 1 OF 4
  FOUND "a __syncthreads() between" "rK[j] = *reinterpret_cast")
broken(03_no_barrier_before_v 03_register_tiling
  "No barrier before V overwrites K."
  "__syncthreads();" "" NTH 2 OF 4
  RIGHT tiny
  FOUND "a __syncthreads() between" "rK[j] = *reinterpret_cast")
broken(03_no_barrier_after_v 03_register_tiling
  "No barrier between loading V and reading it."
  "__syncthreads();" "" NTH 3 OF 4
  FOUND "a __syncthreads() between" "rV[n][c] = *reinterpret_cast")
broken(03_no_barrier_before_k 03_register_tiling
  "No barrier before the next K overwrites V."
  "__syncthreads();" "" NTH 4 OF 4
  RIGHT increasing_max
  FOUND "a __syncthreads() between" "rV[n][c] = *reinterpret_cast")
broken(03_flipped_index 03_register_tiling
  "V's columns are read in another order than O's are written."
  "&smem.sKV[key + n][c * 64 + tx * 4]" "&smem.sKV[key + n][tx * 8 + c * 4]")
broken(03_unwritten_rows 03_register_tiling
  "The last row of each thread is never written."
  "for (int i = 0; i < C::kRows; i++) {\n    const float inverse_sum"
  "for (int i = 0; i < C::kRows - 1; i++) {\n    const float inverse_sum")
broken(03_no_rescale 03_register_tiling
  "O is not rescaled when a tile raises the maximum."
  "acc_o[i][c / 4][c % 4] *= rescale;" ";"
  RIGHT equal_keys tiny)
broken(03_no_row_max 03_register_tiling
  "The maximum is never updated: exponentials of the scores themselves."
  "fmaxf(row_max[i], half_warp_max(tile_max))" "0.0f"
  RIGHT normal dominant_key equal_keys increasing_max tiny one_hot_v)
broken(03_max_not_kept 03_register_tiling
  "The new maximum is not kept for the next tile."
  "row_max[i] = new_max;" ";"
  RIGHT increasing_max)
broken(03_last_tile_missing 03_register_tiling
  "The last tile of keys is left out."
  "n_block < seq_len / C::kBlockN" "n_block < seq_len / C::kBlockN - 1"
  RIGHT dominant_key)
broken(03_sum_over_two_rows 03_register_tiling
  "The sum's reduction reaches the whole warp, which holds two rows."
  "distance = 8; distance > 0; distance /= 2) {\n    value += " "distance = 16; distance > 0; distance /= 2) {\n    value += ")
broken(03_no_padding 03_register_tiling
  "Rows have no padding: lanes that read neighbouring rows meet in the same banks."
  "kPad = 4" "kPad = 0"
  RIGHT all
  COUNTED shared_wavefronts)
broken(03_strided_load 03_register_tiling
  "Each thread loads neighbouring vectors, so that lanes lie far apart: uncoalesced."
  "const int vector = i * C::kThreads + threadIdx.x;"
  "const int vector = threadIdx.x * (C::kBlockN * kVectorsPerRow / C::kThreads) + i;"
  RIGHT all
  COUNTED global_sectors)

# ---- 04 ------------------------------------------------------------------------------------------
# Right numbers on the emulator, whose store_matrix_sync is over for the whole warp at once; on a GPU nothing
# promises that.
broken(04_no_syncwarp_after_s 04_wmma
  "No __syncwarp() between store_matrix_sync and lanes that read the scores."
  "__syncwarp();" ""
  RIGHT all
  FOUND "a __syncwarp() between" "store_matrix_sync(&smem.sS" "scores[j] = *reinterpret_cast")
broken(04_no_barrier_before_v 04_wmma
  "No barrier before V overwrites K."
  "__syncthreads();" "" NTH 2 OF 4
  RIGHT tiny
  FOUND "a __syncthreads() between" ") = packed" "load_matrix_sync(rK")
broken(04_no_barrier_after_v 04_wmma
  "No barrier before the next K overwrites V."
  "__syncthreads();" "" NTH 4 OF 4
  RIGHT increasing_max
  FOUND "a __syncthreads() between" ") = packed" "load_matrix_sync(rV")
broken(04_no_rescale 04_wmma
  "O is not rescaled when a tile raises the maximum."
  "rO = make_float4(rO.x * rescale, rO.y * rescale, rO.z * rescale, rO.w * rescale);" "(void)rO;"
  RIGHT equal_keys tiny)
broken(04_o_not_zeroed 04_wmma
  "O begins with what shared memory happens to hold; NaN times 0 is NaN."
  "smem.sO[first_row + i / kHeadDim][i % kHeadDim] = 0.0f;" ";"
  FOUND "read of memory that nothing has written")
broken(04_keys_not_transposed 04_wmma
  "K is loaded as a fragment that is not transposed."
  "ptx::FragmentBTransposed<T> rK" "ptx::FragmentB<T> rK"
  RIGHT tiny)
broken(04_wrong_pitch 04_wmma
  "The pitch of P leaves out the padding."
  "&smem.sP[first_row][n], C::kBlockN + C::kPad)" "&smem.sP[first_row][n], C::kBlockN)"
  FOUND "read of memory that nothing has written" "load_matrix_sync(rP"
  COUNTED shared_wavefronts)
broken(04_sum_of_another_row 04_wmma
  "The sum comes from lane r instead of lane 2r: another row's."
  "row_sum, 2 * r)" "row_sum, r)"
  RIGHT dominant_key equal_keys tiny)

# ---- 05 ------------------------------------------------------------------------------------------
broken(05_wrong_fragment_row 05_mma_split_kv
  "Lanes name K's rows for ldmatrix in another matrix's order."
  "C::kKeys + lane_idx % 8 + lane_idx / 16 * 8]" "C::kKeys + lane_idx % 16]"
  RIGHT equal_keys tiny)
broken(05_max_of_one_warp 05_mma_split_kv
  "The maximum is that of the first warp's keys."
  "for (int w = 0; w < C::kWarps; w++) new_max" "for (int w = 0; w < 1; w++) new_max"
  RIGHT normal dominant_key equal_keys increasing_max tiny one_hot_v)
broken(05_sum_of_one_warp 05_mma_split_kv
  "The sum is that of one warp's keys."
  "for (int w = 0; w < C::kWarps; w++) row_sum" "for (int w = 0; w < 1; w++) row_sum"
  RIGHT dominant_key)
broken(05_past_shared_memory 05_mma_split_kv
  "The warps' sums have room for one warp too few: the last one writes past the end of shared memory."
  "float sSum[C::kWarps]" "float sSum[C::kWarps - 1]"
  STOPS "shared memory")
broken(05_values_not_transposed 05_mma_split_kv
  "V is read by ldmatrix without .trans."
  "ptx::ldmatrix_x4_trans(" "ptx::ldmatrix_x4("
  RIGHT one_hot_v)
broken(05_shuffle_in_a_branch 05_mma_split_kv
  "The reduction has moved into the branch of the lane that stores its result."
  "warp_max = quad_max(warp_max);\n        if (lane_idx % 4 == 0) smem.sMax[warp_idx][m * 16 + 8 * h + quad] = warp_max;"
  "if (lane_idx % 4 == 0)\n          smem.sMax[warp_idx][m * 16 + 8 * h + quad] = quad_max(warp_max);"
  STOPS "deadlock")
broken(05_no_barrier_after_max 05_mma_split_kv
  "No barrier between the warps' maxima and those who read them."
  "__syncthreads();" "" NTH 2 OF 4
  RIGHT tiny
  FOUND "a __syncthreads() between" ") = packed")
broken(05_arrives_only 05_mma_split_kv
  "Arrives at a barrier without waiting there (bar.arrive instead of bar.sync)."
  "__syncthreads();" "ptx::barrier_arrive(1, C::kThreads);" NTH 3 OF 4
  FOUND "a __syncthreads() between" "*reinterpret_cast<uint32_t*>(&smem.sP[row]")
broken(05_no_barrier_after_p 05_mma_split_kv
  "No barrier between P and the warps that read it."
  "__syncthreads();" "" NTH 3 OF 4
  FOUND "a __syncthreads() between" "*reinterpret_cast<uint32_t*>(&smem.sP[row]")

# ---- 06 ------------------------------------------------------------------------------------------
broken(06_swapped_halves 06_mma_split_q
  "Two weights of a fragment's register are exchanged."
  "ptx::pack<T>(low[2], low[3])," "ptx::pack<T>(low[3], low[2]),"
  RIGHT equal_keys tiny)
broken(06_sum_not_rescaled 06_mma_split_q
  "The row's sum is not rescaled when a tile raises the maximum."
  "row_sum[h] *= rescale;" ";"
  RIGHT equal_keys tiny)
broken(06_wrong_half_rescaled 06_mma_split_q
  "Each row's factor rescales one element of its own row and one of the row eight further down."
  "acc_o[n][2 * h] *= rescale;\n        acc_o[n][2 * h + 1] *= rescale;"
  "acc_o[n][h] *= rescale;\n        acc_o[n][h + 2] *= rescale;"
  RIGHT dominant_key equal_keys increasing_max tiny)
broken(06_sum_of_other_quads 06_mma_split_q
  "The sum's second exchange goes to another quad: another row's sum."
  "return value + __shfl_xor_sync(0xffffffffu, value, 2)" "return value + __shfl_xor_sync(0xffffffffu, value, 4)"
  RIGHT equal_keys tiny)
broken(06_lanes_left_early 06_mma_split_q
  "Lanes return before a shuffle that reads from them."
  "// ---- epilogue" "if (pair != 0) return;"
  STOPS "which does not take part")
broken(06_no_barrier_before_v 06_mma_split_q
  "No barrier before V overwrites K."
  "__syncthreads();" "" NTH 2 OF 4
  RIGHT tiny
  FOUND "a __syncthreads() between" ") = packed")
broken(06_no_barrier_after_v 06_mma_split_q
  "No barrier before the next K overwrites V."
  "__syncthreads();" "" NTH 4 OF 4
  RIGHT increasing_max
  FOUND "a __syncthreads() between" ") = packed")

# ---- 07 ------------------------------------------------------------------------------------------
broken(07_no_wait 07_cp_async
  "Nobody waits for the copies."
  "ptx::cp_async_wait<C::kStages - 2>();" ""
  RIGHT_EARLY
  FOUND "The copy may still be under way" "ptx::cp_async<16>(")
broken(07_wait_one_short 07_cp_async
  "The wait leaves one group too many under way."
  "cp_async_wait<C::kStages - 2>" "cp_async_wait<C::kStages - 1>"
  RIGHT_EARLY
  FOUND "The copy may still be under way" "ptx::cp_async<16>(")
broken(07_no_commit 07_cp_async
  "The first tile's group is not committed: the wait does not count it."
  "ptx::cp_async_commit();  // one group" "// one group"
  RIGHT_EARLY
  FOUND "The copy may still be under way" "ptx::cp_async<16>(")
broken(07_wait_after_barrier 07_cp_async
  "The wait stands after the barrier: others' copies may still be under way."
  "ptx::cp_async_wait<C::kStages - 2>();\n    // ... and everyone's have. Also: everyone is done with the tile before, whose stage is filled next.\n    __syncthreads();"
  "__syncthreads();\n\n    ptx::cp_async_wait<C::kStages - 2>();"
  RIGHT_EARLY
  FOUND "data race on byte" "ptx::cp_async<16>(")
broken(07_no_barrier 07_cp_async
  "Each thread waits for its own copies and reads everybody's."
  "__syncthreads();" ""
  FOUND "data race on byte" "ptx::cp_async<16>(")
broken(07_wrong_stage 07_cp_async
  "K of the next tile goes to the stage that is being read."
  "copy_tile<T, kHeadDim>(smem.sK[next % C::kStages]" "copy_tile<T, kHeadDim>(smem.sK[n_block % C::kStages]"
  FOUND "data race on byte" "ptx::cp_async<16>(")
broken(07_stage_past_the_ring 07_cp_async
  "The ring wraps one stage too late: past the end of shared memory."
  "smem.sV[next % C::kStages]" "smem.sV[next % (C::kStages + 1)]"
  STOPS "is outside the SharedStorage")
broken(07_tile_past_the_end 07_cp_async
  "One tile too many is copied ahead: past the end of K."
  "if (next < tiles)" "if (next <= tiles)"
  STOPS "past the end of global buffer K"
  FOUND "exits without having waited for cp.async" "ptx::cp_async<16>(")
broken(07_misaligned_rows 07_cp_async
  "Padding of 8 bytes: every other row is not a multiple of the 16 bytes that are copied."
  "kPad = 0" "kPad = 4"
  STOPS "the shared address is not a multiple of 16 bytes")

# ---- 08 ------------------------------------------------------------------------------------------
broken(08_swizzle_on_one_side 08_swizzle
  "Copies write without the swizzle, ldmatrix reads with it."
  "ptx::cp_async<16>(chunk_address<T, kHeadDim>(tile, row, column)" "ptx::cp_async<16>(ptx::shared_address(&tile[row][column])")
broken(08_no_swizzle 08_swizzle
  "No swizzle on either side: eight rows meet in the same four banks."
  "layout::swizzle(row, column / 8)" "(column / 8)"
  RIGHT all
  COUNTED shared_wavefronts)
broken(08_swizzle_of_two_rows 08_swizzle
  "Pairs of rows share a swizzle: two rows meet in the same banks."
  "layout::swizzle(row, column / 8)" "layout::swizzle(row / 2, column / 8)"
  RIGHT all
  COUNTED shared_wavefronts)

# ---- 09 ------------------------------------------------------------------------------------------
broken(09_overwritten_fragment 09_fragment_pipelining
  "The next step's fragment overwrites this step's."
  "load_k(rK[(step + 1) % 2], stage, step + 1)" "load_k(rK[step % 2], stage, step + 1)"
  RIGHT tiny)
broken(09_q_not_awaited 09_fragment_pipelining
  "Nobody waits for the copy of Q."
  "ptx::cp_async_wait<C::kStages - 1>();" ""
  RIGHT_EARLY
  FOUND "The copy may still be under way" "ptx::cp_async<16>(")
broken(09_q_in_the_next_group 09_fragment_pipelining
  "Q has no group of its own: the wait counts one group too many."
  "copy_tile<T, kHeadDim>(smem.sQ, gQ);\n  ptx::cp_async_commit();" "copy_tile<T, kHeadDim>(smem.sQ, gQ);\n"
  RIGHT_EARLY
  FOUND "The copy may still be under way" "ptx::cp_async<16>(")
broken(09_swizzle_added 09_fragment_pipelining
  "The column is added to a swizzled address instead of XORed."
  "(lane_address ^ (column % 64 * kElement))" "(lane_address + column % 64 * kElement)"
  STOPS "is outside the SharedStorage"
  FOUND "data race on byte" "ptx::cp_async<16>(")

# ---- 10 ------------------------------------------------------------------------------------------
# A collective that only some lanes reach: where all rows meet their maxima together, it does not show.
broken(10_no_vote 10_instruction_tuning
  "Each lane decides for itself whether to rescale, and shuffles in that branch."
  "if (__any_sync(0xffffffffu, grown))" "if (grown)"
  RIGHT normal equal_keys increasing_max tiny one_hot_v
  STOPS "the lanes that a mask names must execute the same instruction")
broken(10_output_not_rescaled 10_instruction_tuning
  "O is not rescaled when the maximum is raised."
  "acc_o[m][n][2 * h] *= rescale;" ";"
  RIGHT normal equal_keys tiny one_hot_v)
# Right numbers as long as nothing underflows: any maximum that is large enough gives the same quotient.
broken(10_max_not_scaled 10_instruction_tuning
  "The maximum is in other units than the scores."
  "lane_max[m][h] = score * scale_log2;" "lane_max[m][h] = score;"
  RIGHT normal equal_keys tiny one_hot_v)
broken(10_base_two 10_instruction_tuning
  "2 to the power of the score instead of e: log2(e) is missing."
  "scale_log2 = scale * kLog2e;" "scale_log2 = scale;"
  RIGHT dominant_key equal_keys tiny)
broken(10_swapped_registers 10_instruction_tuning
  "Two registers of P's fragment are exchanged."
  "acc_s[m][2 * key + r / 2][r % 2 * 2]" "acc_s[m][2 * key + r % 2][r / 2 * 2]"
  RIGHT tiny)
broken(10_wrong_stage_of_v 10_instruction_tuning
  "V goes to the stage that is being read."
  "(n - 1) % C::kStages * kTileBytes" "n % C::kStages * kTileBytes"
  FOUND "data race on byte" "ptx::cp_async<16>(")
broken(10_no_syncwarp 10_instruction_tuning
  "No __syncwarp() between lanes that write O to shared memory and lanes that read it."
  "__syncwarp();" ""
  FOUND "a __syncwarp() between" "*reinterpret_cast<uint32_t*>(&sQ[row]" "*reinterpret_cast<uint4*>(gO + row")

# ---- 11 ------------------------------------------------------------------------------------------
# From here on the emulator's own order hides more: a product is carried out where it is waited for, and memory is
# the same by every path.
broken(11_no_proxy_fence 11_wgmma
  "No proxy fence between the copies of a tile and the wgmma that read it."
  "ptx::fence_proxy_async();" "" NTH 2 OF 3
  RIGHT all
  FOUND "Missing: fence_proxy_async()" "ptx::cp_async<16>(" "ptx::wgmma<T, C::kBlockN")
broken(11_fence_before_wait 11_wgmma
  "The proxy fence stands before the wait: it covers copies that have arrived, and they have not."
  "ptx::cp_async_wait<C::kStages - 1>();\n  ptx::fence_proxy_async();"
  "ptx::fence_proxy_async();\n  ptx::cp_async_wait<C::kStages - 1>();"
  RIGHT all
  FOUND "Missing: fence_proxy_async()" "ptx::cp_async<16>(" "ptx::wgmma<T, C::kBlockN")
broken(11_no_fence_before_s 11_wgmma
  "No wgmma_fence() before S = Q K^T, whose accumulators the softmax has used."
  "ptx::wgmma_fence(acc_s);" ""
  STOPS "Missing: wgmma_fence()")
broken(11_no_fence_before_o 11_wgmma
  "No wgmma_fence() before O += P V: in the main loop that of S stands before it, after the loop nothing does."
  "ptx::wgmma_fence();" ""
  RIGHT all
  FOUND "Missing: wgmma_fence() between the two" "ptx::wgmma<T, kHeadDim")
broken(11_no_commit 11_wgmma
  "O += P V is not committed: the wait is for committed groups and does not see it."
  "ptx::wgmma_commit();" "" NTH 2 OF 2
  STOPS "Missing: wgmma_commit() after that wgmma")
broken(11_scores_in_flight 11_wgmma
  "The scores are read before the wait for their product."
  "ptx::wgmma_wait<0>(acc_s, acc_o, rP);\n\n    const bool grown = raise_max();"
  "const bool grown = raise_max();\n\n    ptx::wgmma_wait<0>(acc_s, acc_o, rP);"
  RIGHT normal dominant_key equal_keys increasing_max tiny one_hot_v
  FOUND "touches accumulators of the wgmma" "float score[4] = {acc_s[0]" "ptx::wgmma<T, C::kBlockN")
broken(11_wrong_stride 11_wgmma
  "SBO in K's descriptor is the distance of two rows instead of that of eight."
  "layout::k_major_descriptor(ptx::shared_address(smem.sK))"
  "layout::descriptor(ptx::shared_address(smem.sK), 16, 128, layout::SwizzleMode::k128Bytes)"
  RIGHT equal_keys tiny)
broken(11_wrong_leading 11_wgmma
  "LBO in V's descriptor is that of a K-major operand: the second slab begins 16 bytes after the first."
  "layout::mn_major_descriptor(ptx::shared_address(smem.sV), C::kBlockN)"
  "layout::k_major_descriptor(ptx::shared_address(smem.sV))")
broken(11_wrong_major 11_wgmma
  "The product with V takes it to be K-major, as K is."
  "ptx::wgmma<T, kHeadDim, layout::Major::kMN>" "ptx::wgmma<T, kHeadDim, layout::Major::kK>")

# ---- 12 ------------------------------------------------------------------------------------------
broken(12_wrong_parity 12_tma
  "Waits for the other parity: the first wait is over before anything has come."
  "n / C::kStages % 2);" "(n / C::kStages + 1) % 2);"
  STOPS "one arrival too many"
  FOUND "Missing: an mbarrier_wait for the phase | deadlock" "ptx::cp_async_bulk_tensor_load(tiles_of" "ptx::wgmma<T, C::kBlockN")
broken(12_too_few_bytes 12_tma
  "Expects the bytes of one slab, and the tile has two."
  "mbarrier_arrive_expect_tx(&full[stage], kTileBytes)" "mbarrier_arrive_expect_tx(&full[stage], C::kBlockN * 128)"
  STOPS "fewer than the copies bring"
  RIGHT_EARLY)
broken(12_too_many_bytes 12_tma
  "Expects elements times four bytes, and they have two: the rest never comes."
  "mbarrier_arrive_expect_tx(&full[stage], kTileBytes)" "mbarrier_arrive_expect_tx(&full[stage], kTileBytes * 2)"
  STOPS "bytes are still to come")
broken(12_box_of_64_rows 12_tma
  "V's boxes have 64 rows: half a tile comes, and the barrier waits for the other half."
  "map(a.v, C::kBlockN)" "map(a.v, 64)"
  STOPS "bytes are still to come")
broken(12_no_init_fence 12_tma
  "No fence between mbarrier_init and the copies that report to the barrier."
  "ptx::fence_mbarrier_init();" ""
  RIGHT all
  FOUND "Missing: fence_mbarrier_init()")
broken(12_no_barrier_after_init 12_tma
  "No __syncthreads() between mbarrier_init and threads that wait or arrive."
  "__syncthreads();  // nobody waits or arrives before that" ""
  RIGHT all
  FOUND "may not be initialised yet | there is no mbarrier")
broken(12_whole_warp 12_tma
  "The whole warp initialises and copies, not one elected thread."
  "threadIdx.x / 32 == 0 && ptx::elect_sync()" "threadIdx.x / 32 == 0"
  STOPS "one thread initialises it")
broken(12_swizzle_on_one_side 12_tma
  "The tensor maps have no swizzle, the descriptors have."
  "make_slab_map(tensor, kHeadDim, uint64_t(a.batch) * a.heads * a.seq_len, rows);"
  "make_tensor_map(tensor, {kHeadDim, uint64_t(a.batch) * a.heads * a.seq_len}, {kHeadDim * sizeof(T)}, {64, rows}, layout::SwizzleMode::kNone);")
broken(12_q_not_awaited 12_tma
  "Nobody waits for the copy of Q."
  "ptx::mbarrier_wait(&smem.q_full, 0);" ""
  STOPS "ends while the bulk copy"
  RIGHT_EARLY
  FOUND "Missing: an mbarrier_wait for the phase" "ptx::wgmma<T, C::kBlockN")

# ---- 13 ------------------------------------------------------------------------------------------
broken(13_released_early 13_warp_specialization
  "K's stage is released before the product that reads it is over."
  "ptx::wgmma_wait<0>(acc_s, acc_o, rP);\n    release(smem.k_empty, n_block);"
  "release(smem.k_empty, n_block);\n    ptx::wgmma_wait<0>(acc_s, acc_o, rP);"
  RIGHT all
  FOUND "The product may still be running" "ptx::cp_async_bulk_tensor_load(tiles_of" "ptx::wgmma<T, C::kBlockN")
broken(13_parity_stays 13_warp_specialization
  "The parity never changes: right until the ring goes round, then the wait is for what has long come."
  "n / C::kStages % 2);" "0);"
  STOPS "ends while the bulk copy"
  FOUND "data race on byte | deadlock" "ptx::wgmma<T, C::kBlockN")
broken(13_stages_begin_full 13_warp_specialization
  "The producer's first waits are for stages that nobody has had to release."
  "(n / C::kStages + 1) % 2" "n / C::kStages % 2"
  STOPS "deadlock")
broken(13_all_lanes_release 13_warp_specialization
  "Every lane releases the stage, and the barrier counts warps."
  "if (lane_idx == 0) ptx::mbarrier_arrive(&empty" "ptx::mbarrier_arrive(&empty"
  RIGHT all WRONG_EARLY
  FOUND "may count in the phase before | The product may still be running" "ptx::mbarrier_arrive(&empty")
broken(13_counts_threads 13_warp_specialization
  "The barrier of free stages waits for every thread, and one lane a warp arrives."
  "ptx::mbarrier_init(&smem.k_empty[stage], C::kWarpgroups * 4);" "ptx::mbarrier_init(&smem.k_empty[stage], C::kWarpgroups * 128);"
  STOPS "arrivals and 0 bytes are still to come")
broken(13_counts_warpgroups 13_warp_specialization
  "The barrier of free stages waits for one arrival a warpgroup, and every warp arrives."
  "ptx::mbarrier_init(&smem.k_empty[stage], C::kWarpgroups * 4);" "ptx::mbarrier_init(&smem.k_empty[stage], C::kWarpgroups);"
  RIGHT all WRONG_EARLY
  FOUND "data race on byte | may count in the phase before")
broken(13_consumers_give_back 13_warp_specialization
  "setmaxnreg.dec where registers are asked for."
  "ptx::setmaxnreg_inc<C::kConsumerRegisters>" "ptx::setmaxnreg_dec<C::kConsumerRegisters>"
  STOPS "fewer than 240")
broken(13_pool_too_small 13_warp_specialization
  "The producer keeps 40 registers, and for the consumers' 240 the pool lacks what it keeps too much."
  "ptx::setmaxnreg_dec<C::kProducerRegisters>" "ptx::setmaxnreg_dec<40>"
  STOPS "and lacks")
broken(13_one_warp_gives_back 13_warp_specialization
  "Only the warp that loads gives registers back, not its whole warpgroup."
  "ptx::setmaxnreg_dec" "if (warp_idx == 0) ptx::setmaxnreg_dec"
  STOPS "and lacks")
broken(13_o_over_q 13_warp_specialization
  "O is written over Q while another warp's product may still read its rows."
  "ptx::barrier_sync(1 + warpgroup_idx, 128);" ""
  RIGHT all
  FOUND "The product may still be running")
broken(13_one_named_barrier 13_warp_specialization
  "Both warpgroups use the same named barrier: two warps of each may meet there."
  "ptx::barrier_sync(1 + warpgroup_idx, 128);" "ptx::barrier_sync(1, 128);"
  RIGHT all
  FOUND "The product may still be running | may count in the phase before" "ptx::wgmma<T, C::kBlockN" "ptx::stmatrix_x4(")

# ---- 14 ------------------------------------------------------------------------------------------
broken(14_no_first_turn 14_softmax_overlap
  "Nobody gives warpgroup 0 its first turn."
  "if (C::kPingPong && warpgroup_idx == 1) end_turn(false);" ""
  STOPS "deadlock")
broken(14_own_barrier 14_softmax_overlap
  "Arrives at its own barrier instead of the other's."
  "ptx::barrier_arrive(4 - warpgroup_idx" "ptx::barrier_arrive(3 + warpgroup_idx"
  STOPS "deadlock")
broken(14_last_turn_arrives 14_softmax_overlap
  "Warpgroup 1 gives a turn away after the last one: nobody takes it."
  "if (!last || warpgroup_idx == 0) ptx::barrier_arrive" "ptx::barrier_arrive"
  STOPS "out of balance")
broken(14_p_overwritten 14_softmax_overlap
  "One array of P for all tiles: it is overwritten while O += P V still reads it."
  "rP[0], rP[1]);\n    turn(2 * i + 2, rP[1], rP[0]);\n  }\n  if (tiles % 2 == 0) {\n    turn(tiles - 1, rP[0], rP[1]);\n    last_product(rP[1]);"
  "rP[0], rP[0]);\n    turn(2 * i + 2, rP[0], rP[0]);\n  }\n  if (tiles % 2 == 0) {\n    turn(tiles - 1, rP[0], rP[0]);\n    last_product(rP[0]);"
  RIGHT equal_keys increasing_max tiny RIGHT_EARLY
  FOUND "touches A's registers of the wgmma" "p[i / 4][i % 4] = " "ptx::wgmma<T, kHeadDim")
broken(14_o_rescaled_in_flight 14_softmax_overlap
  "O is rescaled before the wait for O += P V."
  "ptx::wgmma_wait<0>(acc_o, p_before);  // P V too: now O may be rescaled\n    release(smem.v_empty, n_block - 1);\n    if (grown) rescale_o();  // the whole warp, or none of it\n"
  "if (grown) rescale_o();  // the whole warp, or none of it\n    ptx::wgmma_wait<0>(acc_o, p_before);  // P V too\n    release(smem.v_empty, n_block - 1);\n"
  RIGHT normal dominant_key equal_keys tiny one_hot_v
  FOUND "touches accumulators of the wgmma" "acc_o[i] *= rescale" "ptx::wgmma<T, kHeadDim")
broken(14_wait_one_short 14_softmax_overlap
  "The first wait leaves two groups under way: S may be one of them."
  "ptx::wgmma_wait<C::kOverlap ? 1 : 0>(acc_s);" "ptx::wgmma_wait<C::kOverlap ? 2 : 0>();"
  RIGHT_EARLY
  FOUND "touches accumulators of the wgmma" "fmaf(acc_s[2 * i + j]" "ptx::wgmma<T, C::kBlockN")
broken(14_v_released_early 14_softmax_overlap
  "V's stage is released while O += P V may still read it."
  "ptx::wgmma_wait<0>(acc_o, p_before);  // P V too: now O may be rescaled\n    release(smem.v_empty, n_block - 1);"
  "release(smem.v_empty, n_block - 1);\n    ptx::wgmma_wait<0>(acc_o, p_before);  // P V too: now O may be rescaled"
  RIGHT all
  FOUND "The product may still be running" "ptx::cp_async_bulk_tensor_load(tiles_of" "ptx::wgmma<T, kHeadDim")
broken(14_p_not_again 14_softmax_overlap
  "Where P was too great, the maximum is raised, but P is left as it was."
  "raise_max();\n      exponentials(p, sum, most);" "raise_max();\n"
  RIGHT normal dominant_key equal_keys increasing_max tiny one_hot_v)
broken(14_o_not_rescaled 14_softmax_overlap
  "Where P was too great, it is computed again, but O is not rescaled."
  "if (grown) rescale_o();" ""
  RIGHT normal dominant_key equal_keys tiny one_hot_v)
broken(14_one_row_tested 14_softmax_overlap
  "Of a lane's two rows, only the first is tested for a P that is too great."
  "h < 2; h++) {\n      const float2 pair" "h < 1; h++) {\n      const float2 pair"
  RIGHT normal dominant_key equal_keys increasing_max tiny one_hot_v)

# ---- 15 ------------------------------------------------------------------------------------------
broken(15_max_not_reset 15_persistent
  "The maximum of one query tile is kept for the next."
  "row_max[h] = -INFINITY;" ""
  RIGHT normal dominant_key equal_keys increasing_max tiny one_hot_v)
broken(15_sum_of_the_next_tile 15_persistent
  "The sums of a query tile end after the softmax of the next one's first scores, which they then contain."
  "end_sums();\n    softmax(even, true);" "softmax(even, true);\n    end_sums();"
  RIGHT increasing_max)
broken(15_o_not_reset 15_persistent
  "The first product of a query tile is added to the O of the tile before."
  "even, n > 1);" "even, n > 1 || t > 0);"
  RIGHT increasing_max)
broken(15_rescaled_by_the_next_tile 15_persistent
  "The turn at the boundary ends like all others: a finished O is rescaled to the maximum of the next query tile."
  "softmax(even, true);\n    ptx::wgmma_wait<0>(acc_o, odd);\n    release(smem.v_empty, 2 * pair + 1);"
  "finish(2 * pair + 2, odd, even);\n\n")
broken(15_tiles_left_over 15_persistent
  "Query tiles that are left over when their number is divided by that of the CTAs have nobody."
  "(q_tiles - 1 - blockIdx.x) / gridDim.x + 1" "q_tiles / gridDim.x")
broken(15_o_overwritten 15_persistent
  "O is stored after the next query tile's first O = P V has started, which overwrites it."
  "if (n == 1 && t > 0) store_o(t - 1);  // Q K^T goes on\n      start_pv(2 * pair + 1, even, n > 1);"
  "start_pv(2 * pair + 1, even, n > 1);\n      if (n == 1 && t > 0) store_o(t - 1);  // Q K^T goes on"
  FOUND "touches accumulators of the wgmma" "ptx::wgmma<T, kHeadDim")
broken(15_o_over_q 15_persistent
  "O of a query tile leaves through the buffer of the next one's Q, which Q K^T still reads."
  "store_o(t - 1);  // Q" "store_o(t);  // Q"
  STOPS "deadlock"
  FOUND "The product may still be running" "ptx::stmatrix_x4(")
broken(15_boundary_not_counted 15_persistent
  "The two tiles of K and V at the boundary are not counted."
  "release(smem.v_empty, 2 * pair + 1);\n    pair++;" "release(smem.v_empty, 2 * pair + 1);\n"
  STOPS "one arrival too many"
  FOUND "Missing: an mbarrier_wait for the phase | one arrival too many | deadlock")
broken(15_q_not_awaited 15_persistent
  "Nobody waits for the next tile's Q."
  "ptx::mbarrier_wait(&smem.q_full[t % 2][warpgroup_idx], t / 2 % 2);" ""
  STOPS "ends while the bulk copy"
  RIGHT_EARLY
  FOUND "Missing: an mbarrier_wait for the phase" "ptx::wgmma<T, C::kBlockN")
broken(15_no_proxy_fence 15_persistent
  "No proxy fence between the threads' stores of O and the copy that reads them."
  "ptx::fence_proxy_async();" ""
  RIGHT all
  FOUND "Missing: fence_proxy_async()" "ptx::cp_async_bulk_tensor_store(")
broken(15_no_syncwarp 15_persistent
  "No __syncwarp() between the lanes' stores of O and the lane that says they are done."
  "__syncwarp();" ""
  RIGHT all
  FOUND "Missing: a barrier between the fence_proxy_async() | Missing: fence_proxy_async() in the thread"
        "ptx::cp_async_bulk_tensor_store(")
broken(15_no_wait_read 15_persistent
  "The next Q comes into a buffer whose O the store has not read yet."
  "ptx::cp_async_bulk_wait_read<0>();" ""
  RIGHT_EARLY
  FOUND "Missing: cp_async_bulk_wait_read" "ptx::cp_async_bulk_tensor_store(")
broken(15_store_not_committed 15_persistent
  "The store of O is in no group: the wait does not count it."
  "ptx::cp_async_bulk_commit();" ""
  RIGHT_EARLY
  FOUND "Missing: cp_async_bulk_wait_read" "ptx::cp_async_bulk_tensor_store(")

# ---- 16 ------------------------------------------------------------------------------------------
broken(16_no_first_score 16_max_free
  "No first score: the reference is that of the query tile before, and rows of lower scores get lost."
  "if (first) {  // the rows' first scores" "if (false) {  // the rows' first scores"
  RIGHT normal large dominant_key equal_keys increasing_max tiny one_hot_v hot_first_block hotter_blocks
        hot_row dominant_first dominant_last huge_scores)
broken(16_first_score_of_one_lane 16_max_free
  "The four lanes of a row take their own first scores."
  "__shfl_sync(0xffffffffu, acc_s[2 * h], 0, 4)" "acc_s[2 * h]"
  RIGHT large dominant_key equal_keys increasing_max tiny hotter_blocks dominant_last huge_scores WRONG_EARLY)
broken(16_most_not_tested 16_max_free
  "The sums of P are not tested for a greatest value."
  "bool in_range = sum[0] + sum[1] <= kMost;" "bool in_range = true;"
  RIGHT normal dominant_key equal_keys increasing_max tiny one_hot_v hot_first_block hotter_blocks hot_tiles
        dominant_first dominant_last huge_scores)
broken(16_most_of_one_row 16_max_free
  "Of a lane's two rows, only the first is tested for a sum that is too great."
  "sum[0] + sum[1] <= kMost" "sum[0] <= kMost"
  RIGHT normal large dominant_key equal_keys increasing_max tiny one_hot_v hot_first_block hotter_blocks
        hot_tiles dominant_first dominant_last huge_scores)
broken(16_no_vote 16_max_free
  "Every lane decides alone whether its sums are in range: lanes of a warp go different ways."
  "careful = !__all_sync(0xffffffffu, in_range);" "careful = !in_range;"
  RIGHT normal large equal_keys increasing_max tiny one_hot_v hot_first_block hotter_blocks hot_tiles
        dominant_first
  STOPS "deadlock | must execute the same instruction")
broken(16_o_not_rescaled 16_max_free
  "O is not rescaled where the reference has grown."
  "if (grown) rescale_o();" ""
  RIGHT normal equal_keys tiny one_hot_v hot_first_block hot_tiles dominant_first)
broken(16_sum_not_rescaled 16_max_free
  "The row's sum is not rescaled where the reference has grown."
  "if (!first) row_sum[h] *= rescale[h];" ""
  RIGHT normal equal_keys tiny one_hot_v hot_first_block hot_tiles dominant_first)
broken(16_p_not_again 16_max_free
  "Where a sum was out of range, there is a new reference, but P is left as it was."
  "grown = take_maximum(first);\n      exponentials(p, sum);" "grown = take_maximum(first);\n"
  RIGHT normal equal_keys tiny one_hot_v hot_first_block hot_tiles dominant_first)
broken(16_sum_of_the_first_try 16_max_free
  "Where a sum was out of range, P is computed again, but the sum that is added is that of the first try."
  "grown = take_maximum(first);\n      exponentials(p, sum);" "grown = take_maximum(first);\n      float again[2]; exponentials(p, again);"
  RIGHT normal equal_keys tiny one_hot_v hot_first_block hot_tiles dominant_first)
broken(16_reference_never_less 16_max_free
  "A new query tile cannot take a reference that is less than that of the tile before."
  "first ? tile_max : fmaxf(row_ref[h], tile_max)" "fmaxf(row_ref[h], tile_max)"
  RIGHT normal dominant_key equal_keys increasing_max tiny one_hot_v hot_first_block hotter_blocks hot_tiles
        dominant_first dominant_last)
broken(16_maximum_of_one_lane 16_max_free
  "The four lanes of a row take references of their own."
  "const float tile_max = layout::quad_max(lane_max[h]);" "const float tile_max = lane_max[h];"
  RIGHT normal equal_keys tiny one_hot_v hot_first_block hot_tiles dominant_first)
broken(16_rescaled_by_the_next_tile 16_max_free
  "A finished O is rescaled to the reference of the query tile that has begun meanwhile."
  "softmax(even, true);\n    ptx::wgmma_wait<0>(acc_o, odd);"
  "const bool grown = softmax(even, true);\n    ptx::wgmma_wait<0>(acc_o, odd); if (grown) rescale_o();"
  RIGHT normal equal_keys tiny one_hot_v hot_first_block hot_tiles dominant_first)
broken(16_first_like_the_others 16_max_free
  "The turn at the boundary ends like all others: no first score, and sums compared with none before."
  "softmax(even, true);\n    ptx::wgmma_wait<0>(acc_o, odd);\n    release(smem.v_empty, 2 * pair + 1);"
  "finish(2 * pair + 2, odd, even);\n\n"
  RIGHT increasing_max tiny hotter_blocks dominant_last WRONG_EARLY)
broken(16_range_of_bf16 16_max_free
  "fp16 has the range of bf16."
  "kMost = 32768.0f" "kMost = 0x1p80f"
  RIGHT normal large dominant_key equal_keys tiny one_hot_v hot_first_block hotter_blocks hot_tiles
        dominant_first dominant_last huge_scores FP16)
