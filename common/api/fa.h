/* The kernels of this repository for programs in C, and in whatever can call C.
 *
 *   O = softmax(Q K^T / sqrt(head_dim)) V, without dropout, its gradients, and the same on e4m3.
 *
 * Q, K, V and O are tensors of fp16 or bf16, contiguous [batch, heads, seq_len, head_dim]: element
 * (b, h, n, d) is number ((b * heads + h) * seq_len + n) * head_dim + d. batch and heads are at
 * least 1, their product is at most 65535; seq_len is a multiple of 128; head_dim is 64 or 128.
 * Pointers are multiples of 16 bytes. O overlaps none of the others, else it is FA_BAD_INPUT.
 *
 * A program says in fa_options what it wants besides. All kernels take another scale than
 * 1 / sqrt(head_dim). Kernels from 12 on take other strides; those of beyond/ take a causal mask,
 * other lengths, fewer heads of K and V, packed sequences, K and V in pages, and a second output;
 * beyond/causal, split_keys and plain also what else may happen to a score, and a head_dim of 96 or
 * 256, without gradients.
 *
 * The library was built for one of two back ends (fa_backend). Built for CUDA, it takes pointers to
 * memory of one GPU. Built for the emulator, it takes pointers to host memory, runs the kernel on
 * the CPU before it returns, ignores the stream, and counts what the kernel does (fa_counters).
 *
 * Every function may be called from any thread at any time. On a GPU the calls of several threads
 * run side by side; on the emulator one waits for the other. No function throws, and none ends the
 * program, with one exception: a kernel of your own that writes outside its memory on an emulator
 * without checks. */
#ifndef FA_H
#define FA_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

#define FA_VERSION "1.0.0" /* of this header; fa_version() is the library's */

#define FA_API __attribute__((visibility("default")))

/* How a call ended. After any but FA_OK, fa_error() has a sentence. */
typedef enum fa_status {
  FA_OK = 0,
  FA_BAD_INPUT = 2,  /* an argument is wrong; nothing was launched */
  FA_FAILED = 3,     /* CUDA's error, or what the emulator found: a race, a deadlock */
  FA_UNSUPPORTED = 4 /* the GPU, the build or the kernel does not take it; nothing was launched */
} fa_status;

typedef enum fa_dtype { FA_FP16 = 0, FA_BF16 = 1 } fa_dtype;

typedef struct fa_problem {
  int batch, heads, seq_len, head_dim;
  fa_dtype dtype;
} fa_problem;

/* Which keys a query sees. Causal is aligned at the bottom right: query i sees key j if
 * j <= i + kv_len - seq_len, so the last query sees all keys. The row of O of a query that sees
 * none is zeros. */
typedef enum fa_mask { FA_MASK_NONE = 0, FA_MASK_CAUSAL = 1 } fa_mask;

/* Where the rows of a tensor lie, as a number of elements from one block, head or row to the next.
 * Blocks are what stands first in the tensor's shape: of the batch, or pages. Each is a multiple of
 * 8 from 0 to 2^39 - 8; where there is one block or head or row, the number does not matter. The
 * head_dim elements of a row are neighbours. All 0: contiguous in the order of the shape. */
typedef struct fa_strides {
  long long block, head, row;
} fa_strides;

/* What a problem has besides fa_problem. A field that is 0 or null says nothing else than
 * fa_problem: begin with {.size = sizeof(fa_options)}, by which the library knows later versions of
 * this struct from earlier ones.
 *
 * Without cu_seqlens, K and V are [batch, kv_heads, kv_len, head_dim]. With them, `batch` sequences
 * are one behind the other: Q and O are [heads, q_rows, head_dim], K and V [kv_heads, kv_rows,
 * head_dim], and sequence i has the rows from cu_seqlens[i] to cu_seqlens[i + 1] - 1 of each head.
 */
typedef struct fa_options {
  size_t size; /* sizeof(fa_options) */
  fa_mask mask;
  int kv_len;   /* keys of a sequence; 0: seq_len */
  int kv_heads; /* of K and V, a divisor of heads: head h reads h / (heads / kv_heads); 0: heads */
  /* [batch + 1] each, in the memory that Q is in; the first is 0, the last q_rows and kv_rows, and
   * none is less than the one before. seq_len and kv_len are at least the longest sequence. On a
   * GPU the call does not wait to read the two arrays, and what is wrong in them is undefined
   * behaviour of the kernel; the emulator checks them. */
  const int *cu_seqlens_q, *cu_seqlens_kv;
  int q_rows, kv_rows; /* rows of one head of Q, and of one of K */
  /* On the emulator the calling thread asks this about 20 times a second while the kernel runs. Any
   * answer but 0 ends the call with FA_FAILED, and the library can be used as before. A kernel that
   * it runs itself is refused with FA_FAILED. */
  int (*wants_end)(void);
  /* A second output, fp32, [batch, heads, seq_len] or of packed sequences [heads, q_rows]: the
   * natural logarithm of each row's sum of e^score over the keys that it sees, with score = scale *
   * q k; -inf if it sees none. From it and O the results of several parts of the keys are merged.
   * It is in the memory that Q is in and overlaps no other tensor. Null: not wanted. The gradients
   * need it (fa_attention_backward). */
  float* lse;
  /* K and V in pages of 16, 32, 64, 128 or 256 keys: they are [pages, kv_heads, page_size,
   * head_dim], and sequence i has the first kv_lens[i] keys of kv_len. Its keys from j * page_size
   * on are in page block_table[i * columns + j], with columns = kv_len / page_size, rounded up;
   * entries behind its last key may be any numbers. kv_lens, [batch], and block_table are in the
   * memory that Q is in. On a GPU what is wrong in them is undefined behaviour of the kernel; the
   * emulator checks them. Give all four, or leave all 0 and null: not in pages. */
  int page_size, pages;
  const int *block_table, *kv_lens;
  /* Of the scores, from 1e-30 to 1000; 0: 1/sqrt(head_dim). Every kernel takes it. It is positive
   * because kernels take a row's maximum before they multiply, and limited because the exponents of
   * much larger scores overflow in fp32. */
  float scale;
  /* Where rows lie, for kernels from 12 on. Rows of [batch, seq_len, heads, head_dim] have
   * {seq_len * heads * head_dim, head_dim, heads * head_dim}; those of packed sequences, [rows,
   * heads, head_dim], {0, head_dim, heads * head_dim}. No two rows of O have an element in common;
   * elements between them stay as they are. */
  fa_strides q_strides, k_strides, v_strides, o_strides;
  /* 1: fa_attention_backward gives the same bits in every launch on the same kind of GPU. Without
   * it several CTAs add to the same rows of dQ in any order, and sums in another order differ in
   * their last bits. All other outputs have the same bits in any case. 0: in any order. */
  int deterministic;
  /* What else happens to a score, in this order; three kernels take it, without gradients.
   * softcap: a scaled score s becomes softcap * tanh(s / softcap); above 0; 0: it stays. */
  float softcap;
  /* ALiBi: a score loses its slope times |i + kv_len - seq_len - j|, the distance of key j from the
   * place of query i. Slopes are in the memory that Q is in: one for each head, [heads], or with
   * alibi_per_sequence = 1 for each head of each sequence, [batch, heads]. Null: none. */
  const float* alibi_slopes;
  int alibi_per_sequence;
  /* With has_window = 1, query i sees at most window_left keys to the left of its place, which is
   * key i + kv_len - seq_len, and window_right to the right of it: from 0 to 2^30, or -1 for all
   * that there are. A causal mask hides what is to the right in any case. 0: neither is read. */
  int has_window, window_left, window_right;
  /* One more score for each head, [heads], in the memory that Q is in, to which no key belongs. It
   * is not scaled, and adds to the sum of each row of its head, and so to lse; a row that sees no
   * key is zeros, with the sink as its lse. When results of several parts of the keys are merged,
   * only one part has the sinks. Null: none. */
  const float* sinks;
} fa_options;

typedef struct fa_kernel {
  const char* name;       /* "16_max_free", "beyond/plain"; lives as long as the library */
  int compute_capability; /* what a GPU must have at least, times ten: 80 is 8.0 */
  int exactly;            /* 1: GPUs of a later one do not run it either */
} fa_kernel;

/* The library's version. Libraries of one first number take programs that were built with an older
 * header of that number. */
FA_API const char* fa_version(void);

/* Returns "cuda", "emulator" or "emulator-checked", which sees every load and store and finds
 * races. */
FA_API const char* fa_backend(void);

/* What the library was built for: the GPUs as nvcc names them ("80, 90a"), or the processor that
 * the emulator runs on ("x86_64", and whether it must be like the one that compiled it). */
FA_API const char* fa_architectures(void);

/* Writes the first `capacity` kernels, in order, to `kernels`, which may be null if capacity is 0.
 * Returns how many there are. The emulator runs all of them. */
FA_API int fa_kernels(fa_kernel* kernels, int capacity);

/* Runs a kernel, by its name or number ("16_max_free", "16"; "plain" for "beyond/plain"), or with
 * "best" the fastest one that takes the problem on this GPU, as fa_plan() says.
 *
 * On a GPU: the kernel runs on the GPU whose memory `q` is, and the calling thread's current GPU
 * stays what it was. It is launched into `stream`, a cudaStream_t of that GPU (null: its default
 * stream). The call does not wait, so an error of the kernel itself comes out of a later call of
 * CUDA. A stream that is being captured records the launch. Kernel 01 needs memory for its scores:
 * 4 * seq_len * seq_len bytes per head, for as many heads as 1 GiB holds, but at least one. The
 * library takes it from the stream's memory pool and returns it there (cudaMallocAsync).
 *
 * On the emulator: `o` is complete when the call returns FA_OK, and unchanged if it does not. */
FA_API fa_status fa_attention(const char* kernel, const fa_problem* problem, const void* q,
                              const void* k, const void* v, void* o, void* stream);

/* The same on a problem with options; null: without any. A kernel that does not take the problem
 * gives FA_UNSUPPORTED; the sentence says what it takes, and which kernel takes the problem. */
FA_API fa_status fa_attention_with(const char* kernel, const fa_problem* problem,
                                   const fa_options* options, const void* q, const void* k,
                                   const void* v, void* o, void* stream);

/* Which kernel fa_attention_with would run, without a launch. Of pointers it reads the arrays in
 * options, and on a GPU none. `plan` gets a text: the first line is the kernel's name. With "best"
 * there follows a line for each kernel that is faster where it can run, and why it cannot:
 * "16_max_free takes mask none, not causal". The text lives until the thread's next call. `device`
 * is the number of a GPU, and means nothing on the emulator. */
FA_API fa_status fa_plan(const char* kernel, const fa_problem* problem, const fa_options* options,
                         int device, const char** plan);

/* The gradients of a loss with respect to Q, K and V, from `d_o`, its gradient with respect to O.
 * dK and dV of a head are sums over the heads of Q that read it. What no query sees has zeros.
 *
 * Problem and options are those of the forward call that gave o and options->lse. Here both are
 * read, and lse must be there, at a multiple of 16 bytes. dO lies as O, dQ as Q, dK as K and dV as
 * V: the same dtype, shape and strides, so no two rows of Q, of K or of V have an element in common
 * either. Rows of dQ, dK and dV may lie between each other, as slices of one tensor do, but no
 * element of them belongs to another tensor, else it is FA_BAD_INPUT. K and V are not in pages.
 *
 * `kernel` is "backward" (compute capability 9.0), "backward_mma" (8.0 and later) or
 * "backward_plain", which are not among fa_kernels(), or "best": the first of these that runs here.
 * All give dK and dV of the same bits in each run; dQ has these from backward_plain alone, because
 * the others add to it in any order.
 *
 * `workspace` has as many bytes as fa_plan_backward() says, begins at a multiple of 16 bytes and is
 * in the memory that Q is in; with fewer it is FA_BAD_INPUT. The next call of the same stream may
 * have it, too. Null: the library takes it from the stream's memory pool and returns it there. The
 * emulator has memory of its own.
 *
 * Streams, captures, errors and fa_counters() are as with fa_attention. On the emulator the three
 * gradients are complete when the call returns FA_OK, and unchanged if it does not. */
FA_API fa_status fa_attention_backward(const char* kernel, const fa_problem* problem,
                                       const fa_options* options, const void* q, const void* k,
                                       const void* v, const void* o, const void* d_o, void* d_q,
                                       void* d_k, void* d_v, void* workspace,
                                       size_t workspace_bytes, void* stream);

/* The same as fa_plan for fa_attention_backward: `plan` gets the kernel's name and, with "best",
 * why it is no faster one. `workspace_bytes`, which may be null, gets what it needs, or 0. */
FA_API fa_status fa_plan_backward(const char* kernel, const fa_problem* problem,
                                  const fa_options* options, int device, const char** plan,
                                  size_t* workspace_bytes);

/* Scales of a tensor of e4m3, by which its numbers are multiplied: float32 in the memory that Q is
 * in. Rows 128 t to 128 t + 127 of head h of sequence b have scales[b * block + i * head + t *
 * tile], with i = h / (the tensor's heads / heads). Where all have the same a stride is 0; none is
 * more than 2^31 - 1. None of the scales may be negative. */
typedef struct fa_scales {
  const float* scales; /* null: all are 1, and nothing else here is read */
  int heads; /* how many there are per sequence and tile, a divisor of the tensor's; 0: kv_heads */
  long long block, head, tile;
} fa_scales;

/* How Q, K and V of fa_attention_fp8 are stored. Begin with {.size = sizeof(fa_fp8)}. Where
 * FlashAttention-3 has q_descale, k_descale and v_descale, [batch, kv_heads], here are {q_descale,
 * 0, kv_heads, 1, 0} and so on: heads of Q that read one head of K share a scale. */
typedef struct fa_fp8 {
  size_t size;       /* sizeof(fa_fp8) */
  fa_scales q, k, v; /* the tile of v is 0, because all tiles of V are added in one sum */
  /* 1: V is contiguous [batch, kv_heads, head_dim, kv_len rounded up to 128], as the kernel reads
   * it; what is behind the last key does not matter, and v_strides are 0. 0: V is stored like K,
   * and each call transposes it into the workspace. */
  int v_transposed;
} fa_fp8;

/* Attention on Q, K and V of e4m3, 8 bits with 4 of exponent and 3 of mantissa, which stand for
 * their numbers times scales. P is rounded to e4m3 as well, and O is of the problem's dtype. `fp8`
 * null: all scales are 1, and V is stored like K. head_dim may be 256 as well.
 *
 * Problem and options are those of fa_attention_with: a causal mask, any lengths, fewer heads of K
 * and V, a scale, and strides, which are multiples of 16 for Q, K and V. There are no packed
 * sequences, no pages, no lse and no gradients.
 *
 * `kernel` is "best" or the only one that there is, "fp8" (compute capability 9.0). `workspace` has
 * as many bytes as fa_plan_fp8() says, begins at a multiple of 16 bytes and is in the memory that Q
 * is in; with fewer it is FA_BAD_INPUT. It is for V transposed and, if kv_len is no multiple of 4,
 * for a copy of K. The next call of the same stream may have it, too. Null: the library takes it
 * from the stream's memory pool and returns it there. The emulator has memory of its own.
 *
 * Streams, captures, errors and fa_counters() are as with fa_attention. */
FA_API fa_status fa_attention_fp8(const char* kernel, const fa_problem* problem,
                                  const fa_options* options, const fa_fp8* fp8, const void* q,
                                  const void* k, const void* v, void* o, void* workspace,
                                  size_t workspace_bytes, void* stream);

/* The same as fa_plan for fa_attention_fp8. `workspace_bytes`, which may be null, gets what it
 * needs, or 0. */
FA_API fa_status fa_plan_fp8(const char* kernel, const fa_problem* problem,
                             const fa_options* options, const fa_fp8* fp8, int device,
                             const char** plan, size_t* workspace_bytes);

/* Why this thread's last call of a function that returns fa_status, or of fa_counters, failed: one
 * sentence, or the emulator's report, which has several lines. Empty after success. Lives until the
 * thread's next call. */
FA_API const char* fa_error(void);

/* What this thread's last kernel did on the emulator, as JSON with the names of
 * bench/schema.json: {"kernel", "dtype", "batch", "heads", "seq_len", "head_dim", those that say
 * what fa_options said, "counters": {name: number}, "statements": [...]}. Counters of memory
 * ("global_...", "shared_...") and "statements" exist in the checked build only. Null, with an
 * fa_error, on a GPU and where there was no such run or it failed. Lives until the thread's next
 * call. */
FA_API const char* fa_counters(void);

#ifdef __cplusplus
}
#endif

#endif
