# Kernels with one seeded bug each: made from the real sources by one replacement, so that they stay what
# they are when a kernel changes. A text that is not found, or not as often as stated, fails the build.
#
#   broken(NAME KERNEL CAUGHT_BY MISSED_BY TEXT REPLACEMENT [NTH n OF m] [FOUND words line...])
#
# CAUGHT_BY: inputs on which the result is wrong; MISSED_BY: inputs on which the bug does not show, or
# nothing. CAUGHT_BY `nothing`: the result is right, only something else is not (said beside it). TEXT
# occurs once, or m times and the n-th one is replaced. build/<preset>/bin/broken runs them.
# FOUND: the checked build finds the bug, whatever the numbers: words of its report, and texts of the source
# lines that the report names.

# ---- 01 ------------------------------------------------------------------------------------------
broken(01_transposed_scores 01_naive normal ""
  "query) * seq_len + key] = acc_s" "key) * seq_len + query] = acc_s")
broken(01_no_row_max 01_naive large normal
  "expf(gS[key] - row_max)" "expf(gS[key])")
broken(01_off_by_one 01_naive normal ""
  "key = 0; key < seq_len; key++) gS[key] *= inverse_sum" "key = 1; key < seq_len; key++) gS[key] *= inverse_sum")

# ---- 02 ------------------------------------------------------------------------------------------
broken(02_no_barrier_before_load 02_online_softmax normal ""
  "__syncthreads();" "" NTH 1 OF 2
  FOUND "a __syncthreads() between" "smem.sK[i / kHeadDim]")
broken(02_no_barrier_after_load 02_online_softmax normal ""
  "__syncthreads();" "" NTH 2 OF 2
  FOUND "a __syncthreads() between" "smem.sK[i / kHeadDim]")
broken(02_no_syncwarp 02_online_softmax normal ""
  "__syncwarp();" ""
  FOUND "a __syncwarp() between" "[lane_idx] = p" "const float p = smem.sP")
broken(02_flipped_index 02_online_softmax normal equal_keys
  "smem.sP[first_row + row][key]" "smem.sP[first_row + row][key ^ 1]")
broken(02_unwritten_row 02_online_softmax normal ""
  "for (int row = 0; row < C::kRows; row++) {\n    const float inverse_sum"
  "for (int row = 1; row < C::kRows; row++) {\n    const float inverse_sum")
broken(02_no_rescale 02_online_softmax increasing_max equal_keys
  "acc_o[row][c] *= rescale;" ";")
broken(02_sum_not_rescaled 02_online_softmax increasing_max equal_keys
  "fmaf(row_sum[row], rescale, warp_sum(p))" "row_sum[row] + warp_sum(p)")
broken(02_no_row_max 02_online_softmax large normal
  "fmaxf(row_max[row], warp_max(score))" "0.0f")
broken(02_last_tile_missing 02_online_softmax normal ""
  "n_block < seq_len / C::kBlockN" "n_block < seq_len / C::kBlockN - 1")
broken(02_keys_of_the_first_head 02_online_softmax normal ""
  "gK = k + head * seq_len * kHeadDim" "gK = k")
broken(02_unwritten_tail 02_online_softmax normal ""
  "i < C::kBlockN * kHeadDim; i += C::kThreads" "i < (C::kBlockN - 1) * kHeadDim; i += C::kThreads"
  FOUND "read of memory that nothing has written")
broken(02_overlapping_tiles 02_online_softmax normal ""
  "m_block = blockIdx.x" "m_block = blockIdx.x / 2"
  FOUND "Let each write its own part")
# Right numbers, but 32 lanes meet in one bank: only the checked build's wavefronts show it.
broken(02_no_padding 02_online_softmax nothing normal
  "kPad = 2" "kPad = 0")

# ---- 03 ------------------------------------------------------------------------------------------
broken(03_no_barrier_after_k 03_register_tiling normal ""
  "__syncthreads();" "" NTH 1 OF 4
  FOUND "a __syncthreads() between" "rK[j] = *reinterpret_cast")
broken(03_no_barrier_before_v 03_register_tiling normal ""
  "__syncthreads();" "" NTH 2 OF 4
  FOUND "a __syncthreads() between" "rK[j] = *reinterpret_cast")
broken(03_no_barrier_after_v 03_register_tiling normal ""
  "__syncthreads();" "" NTH 3 OF 4
  FOUND "a __syncthreads() between" "rV[n][c] = *reinterpret_cast")
broken(03_no_barrier_before_k 03_register_tiling normal ""
  "__syncthreads();" "" NTH 4 OF 4
  FOUND "a __syncthreads() between" "rV[n][c] = *reinterpret_cast")
broken(03_flipped_index 03_register_tiling normal ""
  "&smem.sKV[key + n][c * 64 + tx * 4]" "&smem.sKV[key + n][tx * 8 + c * 4]")
broken(03_unwritten_rows 03_register_tiling normal ""
  "for (int i = 0; i < C::kRows; i++) {\n    const float inverse_sum"
  "for (int i = 0; i < C::kRows - 1; i++) {\n    const float inverse_sum")
broken(03_no_rescale 03_register_tiling increasing_max equal_keys
  "acc_o[i][c / 4][c % 4] *= rescale;" ";")
broken(03_no_row_max 03_register_tiling large normal
  "fmaxf(row_max[i], half_warp_max(tile_max))" "0.0f")
broken(03_last_tile_missing 03_register_tiling normal ""
  "n_block < seq_len / C::kBlockN" "n_block < seq_len / C::kBlockN - 1")

# ---- 04 ------------------------------------------------------------------------------------------
# Right numbers on the emulator, whose store_matrix_sync is over for the whole warp at once; on a GPU nothing
# promises that.
broken(04_no_syncwarp_after_s 04_wmma nothing normal
  "__syncwarp();" ""
  FOUND "a __syncwarp() between" "store_matrix_sync(&smem.sS" "scores[j] = *reinterpret_cast")
broken(04_no_barrier_before_v 04_wmma normal ""
  "__syncthreads();" "" NTH 2 OF 4
  FOUND "a __syncthreads() between" ") = packed" "load_matrix_sync(rK")
broken(04_no_barrier_after_v 04_wmma normal ""
  "__syncthreads();" "" NTH 4 OF 4
  FOUND "a __syncthreads() between" ") = packed" "load_matrix_sync(rV")
broken(04_no_rescale 04_wmma increasing_max equal_keys
  "rO = make_float4(rO.x * rescale, rO.y * rescale, rO.z * rescale, rO.w * rescale);" "(void)rO;")
broken(04_keys_not_transposed 04_wmma normal ""
  "ptx::FragmentBTransposed<T> rK" "ptx::FragmentB<T> rK")
broken(04_wrong_pitch 04_wmma normal ""
  "&smem.sP[first_row][n], C::kBlockN + C::kPad)" "&smem.sP[first_row][n], C::kBlockN)")

# ---- 05 ------------------------------------------------------------------------------------------
broken(05_wrong_fragment_row 05_mma_split_kv normal equal_keys
  "C::kKeys + lane_idx % 8 + lane_idx / 16 * 8]" "C::kKeys + lane_idx % 16]")
broken(05_max_of_one_warp 05_mma_split_kv large ""
  "for (int w = 0; w < C::kWarps; w++) new_max" "for (int w = 0; w < 1; w++) new_max")
broken(05_values_not_transposed 05_mma_split_kv normal ""
  "ptx::ldmatrix_x4_trans(" "ptx::ldmatrix_x4(")
broken(05_no_barrier_after_max 05_mma_split_kv normal ""
  "__syncthreads();" "" NTH 2 OF 4
  FOUND "a __syncthreads() between" ") = packed")
broken(05_no_barrier_after_p 05_mma_split_kv normal ""
  "__syncthreads();" "" NTH 3 OF 4
  FOUND "a __syncthreads() between" "*reinterpret_cast<uint32_t*>(&smem.sP[row]")

# ---- 06 ------------------------------------------------------------------------------------------
broken(06_swapped_halves 06_mma_split_q normal equal_keys
  "ptx::pack<T>(low[2], low[3])," "ptx::pack<T>(low[3], low[2]),")
broken(06_sum_not_rescaled 06_mma_split_q increasing_max equal_keys
  "row_sum[h] *= rescale;" ";")
broken(06_no_barrier_before_v 06_mma_split_q normal ""
  "__syncthreads();" "" NTH 2 OF 4
  FOUND "a __syncthreads() between" ") = packed")
broken(06_no_barrier_after_v 06_mma_split_q normal ""
  "__syncthreads();" "" NTH 4 OF 4
  FOUND "a __syncthreads() between" ") = packed")

# ---- 07 ------------------------------------------------------------------------------------------
broken(07_no_wait 07_cp_async normal ""
  "ptx::cp_async_wait<C::kStages - 2>();" ""
  FOUND "The copy may still be under way" "ptx::cp_async<16>(")
broken(07_wait_one_short 07_cp_async normal ""
  "cp_async_wait<C::kStages - 2>" "cp_async_wait<C::kStages - 1>"
  FOUND "The copy may still be under way" "ptx::cp_async<16>(")
broken(07_no_barrier 07_cp_async normal ""
  "__syncthreads();" ""
  FOUND "data race on byte" "ptx::cp_async<16>(")
broken(07_wrong_stage 07_cp_async normal ""
  "copy_tile<T, kHeadDim>(smem.sK[next % C::kStages]" "copy_tile<T, kHeadDim>(smem.sK[n_block % C::kStages]"
  FOUND "data race on byte" "ptx::cp_async<16>(")

# ---- 08 ------------------------------------------------------------------------------------------
broken(08_swizzle_on_one_side 08_swizzle normal ""
  "ptx::cp_async<16>(chunk_address<T, kHeadDim>(tile, row, column)" "ptx::cp_async<16>(ptx::shared_address(&tile[row][column])")
# Right numbers, but eight rows meet in the same four banks: only wavefronts show it.
broken(08_no_swizzle 08_swizzle nothing normal
  "layout::swizzle(row, column / 8)" "(column / 8)")

# ---- 09 ------------------------------------------------------------------------------------------
broken(09_overwritten_fragment 09_fragment_pipelining normal ""
  "load_k(rK[(step + 1) % 2], stage, step + 1)" "load_k(rK[step % 2], stage, step + 1)")
broken(09_q_not_awaited 09_fragment_pipelining normal ""
  "ptx::cp_async_wait<C::kStages - 1>();" ""
  FOUND "The copy may still be under way" "ptx::cp_async<16>(")
broken(09_swizzle_added 09_fragment_pipelining normal ""
  "(lane_address ^ (column % 64 * kElement))" "(lane_address + column % 64 * kElement)")

# ---- 10 ------------------------------------------------------------------------------------------
# A collective that only some lanes reach: where all rows meet their maxima together, it does not show.
broken(10_no_vote 10_instruction_tuning large normal
  "if (__any_sync(0xffffffffu, grown))" "if (grown)"
  FOUND "the lanes that a mask names must execute the same instruction")
broken(10_output_not_rescaled 10_instruction_tuning increasing_max equal_keys
  "acc_o[m][n][2 * h] *= rescale;" ";")
# Right numbers as long as nothing underflows: any maximum that is large enough gives the same quotient.
broken(10_max_not_scaled 10_instruction_tuning large normal
  "lane_max[m][h] = score * scale_log2;" "lane_max[m][h] = score;")
broken(10_swapped_registers 10_instruction_tuning normal ""
  "acc_s[m][2 * key + r / 2][r % 2 * 2]" "acc_s[m][2 * key + r % 2][r / 2 * 2]")
broken(10_wrong_stage_of_v 10_instruction_tuning normal ""
  "(n - 1) % C::kStages * kTileBytes" "n % C::kStages * kTileBytes"
  FOUND "data race on byte" "ptx::cp_async<16>(")
broken(10_no_syncwarp 10_instruction_tuning normal ""
  "__syncwarp();" ""
  FOUND "a __syncwarp() between" "*reinterpret_cast<uint32_t*>(&sQ[row]" "*reinterpret_cast<uint4*>(gO + row")
