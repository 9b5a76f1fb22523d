/*
 * Restartable sections for the inline functions of coreline/inline.h, and what these know of the library.
 *
 * Everything here is private. Include coreline.h.
 *
 * A section does what the library's own sections do, which crates/world/src/arch describes: the kernel restarts it
 * if it preempts, moves or signals the thread before the last store. It differs in one respect. The library stays in
 * memory, so its sections leave the descriptor armed. A program or plugin with these functions may be unloaded, so
 * its sections disarm, on every way out. Otherwise the kernel would read a descriptor that is gone, and end the
 * process.
 *
 * The functions read handles. They compare the mark first: four letters of the word by which the library knows a
 * handle, which differ for each type, and for each layout of it. So a null pointer, a handle of another type, one
 * that was destroyed, and one of a library with another layout all go to the library's function, which returns the
 * code.
 */
#ifndef CORELINE_SECTIONS_H
#define CORELINE_SECTIONS_H

#if defined(__x86_64__) && defined(__LP64__) && defined(__linux__) && !defined(CORELINE_NO_INLINE)
#define CORELINE_HAS_SECTIONS 1
#else
#define CORELINE_HAS_SECTIONS 0
#endif

/* What coreline_check() compares. Offsets are in bytes, from a handle. */
#define CORELINE_STRIDE_SHIFT 16
#define CORELINE_AREA 16
#define CORELINE_COUNTER_MARK 0x2e726574u
#define CORELINE_COUNTER_GATE 24
#define CORELINE_COUNTERS_MARK 0x73726574u
#define CORELINE_COUNTERS_LENGTH 24
#define CORELINE_COUNTERS_GATES 32
#define CORELINE_COUNTERS_GATE_SIZE 24
#define CORELINE_COUNTERS_OF_GATE 32
#define CORELINE_PERCPU_MARK 0x34367570u
#define CORELINE_PERCPU_WORDS 24
#define CORELINE_PERCPU_LINES 32
#define CORELINE_PERCPU_LINE_SIZE 16
#define CORELINE_PERCPU_OF_LINE 8
/* From limits, and from a gate, which begins with limits. */
#define CORELINE_LIMIT_OF_CIDS 4
#define CORELINE_GATE_FIRST 8

#if CORELINE_HAS_SECTIONS

/* What stands before an abort handler, as the C library registers threads. */
#define CORELINE_RSEQ_SIGNATURE 0x53053053

#define CORELINE_ALWAYS static inline __attribute__((always_inline))

/*
 * Labels: 2 is where to start over, 3 and 4 are the beginning and the end, 5 is the descriptor, 6 the abort handler
 * behind the signature, 8 the way out without a slot, 9 where the two kinds of index meet. Arming is the last
 * instruction before the beginning. `?` puts what is pushed into the function's group, if it has one, so that the
 * linker drops both or none.
 *
 * The CPU number is tried first. The concurrency ID counts only if the CPU number is not negative, because a thread
 * that is not registered can seem to have one. In rax: the descriptor, then the index, then the offset of the slot, and
 * at last the address of the word. An addition that names the word by one register takes 2.0 ns on an Intel Xeon
 * (family 6, model 207), and one that names it by two takes 2.45 ns.
 */
#define CORELINE_SECTION_ENTER                                                                                 \
    "2:\n\tleaq 5f(%%rip), %%rax\n\tmovq %%rax, %%fs:8(%[area])\n3:\n\t"                                       \
    "movl %%fs:4(%[area]), %%eax\n\tcmpl %c[at](%[limits]), %%eax\n\tjb 9f\n\t"                                \
    "sarl $31, %%eax\n\torl %%fs:24(%[area]), %%eax\n\tcmpl %c[cids](%[limits]), %%eax\n\tjae 8f\n9:\n\t"      \
    "shlq %[shift], %%rax\n\t"
#define CORELINE_SECTION_DESCRIPTOR                                                                            \
    ".pushsection __rseq_cs, \"aw?\"\n\t.balign 32\n5:\n\t.long 0, 0\n\t.quad 3b, 4b - 3b, 6f\n\t.popsection\n\t" \
    ".pushsection __rseq_failure, \"ax?\"\n\t"                                                                 \
    ".byte 0x0f, 0xb9, 0x3d\n\t.long %c[signature]\n6:\n\tjmp 2b\n\t"
#define CORELINE_SECTION_LEAVE                                                                                 \
    "\n4:\n\tmovq $0, %%fs:8(%[area])\n\t" CORELINE_SECTION_DESCRIPTOR                                        \
    "8:\n\tmovq $0, %%fs:8(%[area])\n\tjmp %l[no_slot]\n\t.popsection\n\t"
/* With a result, 8 is behind the end: results and labels do not go together in older compilers. */
#define CORELINE_SECTION_LEAVE_WITH                                                                            \
    "\n4:\n\tmovl $1, %[is_done]\n8:\n\tmovq $0, %%fs:8(%[area])\n\t" CORELINE_SECTION_DESCRIPTOR            \
    ".popsection\n\t"
#define CORELINE_SECTION_KNOWS(AT)                                                                             \
    [area] "r"(area), [limits] "r"(limits), [at] "i"(AT), [cids] "i"((AT) + CORELINE_LIMIT_OF_CIDS),           \
        [shift] "i"(CORELINE_STRIDE_SHIFT), [signature] "i"(CORELINE_RSEQ_SIGNATURE)

/*
 * Adds to the word `offset` bytes behind the place to which a gate opens; 0, without effect, if there is no slot. A gate
 * has the address of slot 0 behind the limits, and the section reads it after them.
 */
CORELINE_ALWAYS int coreline_section_add_behind(intptr_t area, const void *limits, size_t offset, int64_t delta)
{
    __asm__ goto(CORELINE_SECTION_ENTER
                 "addq %c[slots](%[limits]), %%rax\n\taddq %[offset], %%rax\n\taddq %[delta], (%%rax)"
                 CORELINE_SECTION_LEAVE
                 :
                 : CORELINE_SECTION_KNOWS(0), [slots] "i"(CORELINE_GATE_FIRST), [offset] "r"(offset),
                   [delta] "er"(delta)
                 : "rax", "cc", "memory"
                 : no_slot);
    return 1;
no_slot:
    return 0;
}

/* As coreline_section_add_behind(), for the first word, and the gate in the handle of a counter. */
CORELINE_ALWAYS int coreline_section_add(intptr_t area, const coreline_counter_t *limits, int64_t delta)
{
    __asm__ goto(CORELINE_SECTION_ENTER "addq %c[slots](%[limits]), %%rax\n\taddq %[delta], (%%rax)"
                     CORELINE_SECTION_LEAVE
                 :
                 : CORELINE_SECTION_KNOWS(CORELINE_COUNTER_GATE),
                   [slots] "i"(CORELINE_COUNTER_GATE + CORELINE_GATE_FIRST), [delta] "er"(delta)
                 : "rax", "cc", "memory"
                 : no_slot);
    return 1;
no_slot:
    return 0;
}

/* As coreline_section_add_behind(), for slots whose limits have no address behind them: `first` is the word in slot 0. */
CORELINE_ALWAYS int coreline_section_add_to(intptr_t area, const void *limits, uintptr_t first, uint64_t delta)
{
    __asm__ goto(CORELINE_SECTION_ENTER "addq %[first], %%rax\n\taddq %[delta], (%%rax)" CORELINE_SECTION_LEAVE
                 :
                 : CORELINE_SECTION_KNOWS(0), [first] "r"(first), [delta] "er"(delta)
                 : "rax", "cc", "memory"
                 : no_slot);
    return 1;
no_slot:
    return 0;
}

/* Reads the word that is `first` in slot 0; 0, without a value, if there is no slot. */
CORELINE_ALWAYS int coreline_section_load(intptr_t area, const void *limits, uintptr_t first, uint64_t *value)
{
    int is_done = 0;
    uint64_t found;
    __asm__ volatile(CORELINE_SECTION_ENTER "movq (%[first],%%rax), %[found]" CORELINE_SECTION_LEAVE_WITH
                     : [is_done] "+&r"(is_done), [found] "=&r"(found)
                     : CORELINE_SECTION_KNOWS(0), [first] "r"(first)
                     : "rax", "cc", "memory");
    if (is_done) {
        *value = found;
    }
    return is_done;
}

/* Exchanges the word that is `first` in slot 0; 0, without effect, if there is no slot. Not `xchg`, which is locked. */
CORELINE_ALWAYS int coreline_section_exchange(intptr_t area, const void *limits, uintptr_t first, uint64_t value,
                                              uint64_t *old)
{
    int is_done = 0;
    uint64_t found;
    __asm__ volatile(CORELINE_SECTION_ENTER "addq %[first], %%rax\n\tmovq (%%rax), %[found]\n\tmovq %[value], (%%rax)"
                         CORELINE_SECTION_LEAVE_WITH
                     : [is_done] "+&r"(is_done), [found] "=&r"(found)
                     : CORELINE_SECTION_KNOWS(0), [first] "r"(first), [value] "r"(value)
                     : "rax", "cc", "memory");
    if (is_done) {
        *old = found;
    }
    return is_done;
}

/*
 * Stores to the word that is `first` in slot 0, if the word is `expected`; 0, without effect, if there is no slot. What
 * the word was is in `found`. A word that is another one ends the section at once.
 */
CORELINE_ALWAYS int coreline_section_store_if_equal(intptr_t area, const void *limits, uintptr_t first,
                                                    uint64_t expected, uint64_t value, uint64_t *found)
{
    int is_done = 0;
    uint64_t was;
    __asm__ volatile(CORELINE_SECTION_ENTER "addq %[first], %%rax\n\tmovq (%%rax), %[was]\n\t"
                     "cmpq %[was], %[expected]\n\tjne 4f\n\tmovq %[value], (%%rax)" CORELINE_SECTION_LEAVE_WITH
                     : [is_done] "+&r"(is_done), [was] "=&r"(was)
                     : CORELINE_SECTION_KNOWS(0), [first] "r"(first), [expected] "r"(expected), [value] "r"(value)
                     : "rax", "cc", "memory");
    *found = was;
    return is_done;
}

#undef CORELINE_SECTION_ENTER
#undef CORELINE_SECTION_DESCRIPTOR
#undef CORELINE_SECTION_LEAVE
#undef CORELINE_SECTION_LEAVE_WITH
#undef CORELINE_SECTION_KNOWS

/* The beginning of a handle's word that says of which type it is. Other words of other types may lie there. */
typedef uint32_t __attribute__((may_alias)) coreline_mark_t;

/* Whether a handle has this mark. The load acquires, as all do here: what the library wrote before it is seen. */
CORELINE_ALWAYS int coreline_is_marked(const void *handle, uint32_t mark)
{
    const int is_marked = handle != NULL && ((const coreline_mark_t *)handle)[1] == mark;
    __atomic_signal_fence(__ATOMIC_ACQUIRE);
    return __builtin_expect(is_marked, 1) != 0;
}

/* What a handle has at an offset. */
CORELINE_ALWAYS const void *coreline_behind(const void *handle, size_t offset)
{
    return (const char *)handle + offset;
}

CORELINE_ALWAYS intptr_t coreline_area_of(const void *handle)
{
    return *(const intptr_t *)coreline_behind(handle, CORELINE_AREA);
}

/* Where a word of per-CPU words is: the limits of its slots, and its address in slot 0. */
typedef struct {
    const void *limits;
    uintptr_t first;
} coreline_word_t;

/* Finds a word; 0 if the handle is not one of words, or has no such word. */
CORELINE_ALWAYS int coreline_find_word(const coreline_percpu_t *percpu, size_t word, coreline_word_t *found)
{
    const uintptr_t *line;
    if (!coreline_is_marked(percpu, CORELINE_PERCPU_MARK)
        || word >= *(const size_t *)coreline_behind(percpu, CORELINE_PERCPU_WORDS)) {
        return 0;
    }
    line = (const uintptr_t *)coreline_behind(*(const void *const *)coreline_behind(percpu, CORELINE_PERCPU_LINES),
                                              word / CORELINE_PERCPU_OF_LINE * CORELINE_PERCPU_LINE_SIZE);
    found->limits = (const void *)line[0];
    found->first = line[1] + word % CORELINE_PERCPU_OF_LINE * sizeof(uint64_t);
    return 1;
}

/* Whether a function can write a result there, so that it need not say what is wrong. */
CORELINE_ALWAYS int coreline_is_place(const uint64_t *place)
{
    return place != NULL && (uintptr_t)place % sizeof(uint64_t) == 0;
}

#undef CORELINE_ALWAYS

/*
 * glibc from 2.35 on: where each thread has its rseq area, and how long that is. The names are ours, because
 * <sys/rseq.h> may declare those of glibc in another way.
 */
extern const ptrdiff_t coreline_rseq_offset __asm__("__rseq_offset") __attribute__((weak, visibility("default")));
extern const unsigned int coreline_rseq_size __asm__("__rseq_size") __attribute__((weak, visibility("default")));

#endif /* CORELINE_HAS_SECTIONS */

#endif /* CORELINE_SECTIONS_H */
