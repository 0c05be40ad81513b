// Images with every defect a generator knows, run confined in a target whose threads throw all the
// time; and attacks by confined code, none of which succeed.
#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <cstring>
#include <fstream>
#include <random>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "conformance/child_process.hpp"
#include "inject/image/contents.hpp"
#include "inject/link/unwind_testing.hpp"
#include "inject/protocol/procedures.hpp"
#include "inject/source/injector_testing.hpp"
#include "seeded_runs.hpp"
#include "tasks/stacks/sanitizer.hpp"

namespace amalgam::adversary {
namespace {

using namespace detail;

/// Whether such a process exists and runs.
bool runs(pid_t pid) {
    std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
    std::string text;
    if (!std::getline(file, text)) return false;
    const std::string behind_name = text.substr(text.rfind(')') + 1);
    return behind_name.find_first_of("ZX") != 1;
}

/// Makes the system call given by its payload, and returns its result.
const code_image& tries() {
    static const code_image image = compiled("tries", R"(
static long ask(long number, const long* with) {
#if defined(__x86_64__)
    long result;
    register long r10 __asm__("r10") = with[3];
    register long r8 __asm__("r8") = with[4];
    register long r9 __asm__("r9") = with[5];
    __asm__ volatile("syscall" : "=a"(result)
                     : "a"(number), "D"(with[0]), "S"(with[1]), "d"(with[2]), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return result;
#else
    register long x8 __asm__("x8") = number;
    register long x0 __asm__("x0") = with[0];
    register long x1 __asm__("x1") = with[1];
    register long x2 __asm__("x2") = with[2];
    register long x3 __asm__("x3") = with[3];
    register long x4 __asm__("x4") = with[4];
    register long x5 __asm__("x5") = with[5];
    __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5) : "memory");
    return x0;
#endif
}
// A number, six arguments and a text; an argument of -77 is the text's address.
MAIN(tries) {
    long all[7];
    std::memcpy(all, payload, sizeof all);
    for (long& each : all)
        if (each == -77) each = reinterpret_cast<long>(static_cast<char*>(payload) + sizeof all);
    const long result = ask(all[0], all + 1);
    amalgam_inject_result(&result, sizeof result);
}
)");
    return image;
}

constexpr long the_text = -77;

TEST(confined_code, ends_with_a_target_that_is_killed) {
    const code_image loops =
        compiled("loops", "MAIN(loops) { for (volatile long i = 0;; ++i) {} }");
    conformance::child_process victim([&](conformance::channel& parent) {
        engine at_target("shm://"), at_source("shm://");
        const injection_target target(
            at_target, {.allows = {.unsigned_too = true}, .confined = {.on = true, .time = 1h}});
        injector inject(at_source);
        const auto later = inject.add(loops).create(1).start(at_source.lookup(at_target.address()));
        // Finds the only process whose parent is this one.
        for (pid_t each = ::getpid() + 1;; ++each) {
            if (each > ::getpid() + 100'000) each = 1;
            std::ifstream file("/proc/" + std::to_string(each) + "/stat");
            std::string text;
            if (!std::getline(file, text)) continue;
            std::istringstream rest(text.substr(text.rfind(')') + 1));
            char state = 0;
            pid_t of = 0;
            rest >> state >> of;
            if (of != ::getpid()) continue;
            parent.say(std::to_string(each));
            break;
        }
        (void)parent.hear();
        return 0;
    });
    const pid_t confined = std::stoi(victim.line().hear());
    EXPECT_TRUE(runs(confined));
    victim.kill();
    poll_until([confined] { return !runs(confined); });
}

class confined_code_test : public injector_test {
protected:
    long result_of(const std::array<long, 7>& what, const std::string& text = "") {
        injection message = inject.add(tries()).create(sizeof(what) + text.size() + 1);
        std::memcpy(message.payload().data(), what.data(), sizeof(what));
        std::memcpy(message.payload().data() + sizeof(what), text.data(), text.size());
        const std::vector<std::byte> answer = message.call(there);
        long result = 0;
        EXPECT_EQ(answer.size(), sizeof(result));
        std::memcpy(&result, answer.data(), std::min(answer.size(), sizeof(result)));
        return result;
    }
};

TEST_F(confined_code_test, gets_nothing_from_the_system_but_memory_and_clocks) {
    const injection_target target(at_target, open_to_all({.confined = {.on = true, .time = 60s}}));
    struct attempt {
        const char* what;
        std::array<long, 7> call;
        const char* text = "";
    };
    const long me = ::getpid(), private_memory = MAP_PRIVATE | MAP_ANONYMOUS;
    const long read_write = PROT_READ | PROT_WRITE, run = PROT_READ | PROT_EXEC;
    const attempt all[] = {
        // Files.
        {"open", {SYS_openat, AT_FDCWD, the_text, O_RDONLY}, "/etc/passwd"},
        {"make a file",
         {SYS_openat, AT_FDCWD, the_text, O_CREAT | O_WRONLY, 0600},
         "/tmp/confined"},
        {"openat2", {437, AT_FDCWD, the_text, 0, 24}, "/etc/passwd"},
        {"memfd_create", {SYS_memfd_create, the_text, 0}, "file"},
        {"read standard input", {SYS_read, 0, the_text, 1}},
        {"read its answers", {SYS_read, 3, the_text, 1}},
        {"write standard output", {SYS_write, 1, the_text, 1}, "x"},
        {"close its answers", {SYS_close, 3}},
        {"fcntl", {SYS_fcntl, 3, F_GETFL}},
        {"ioctl", {SYS_ioctl, 0, 0x5413, the_text}},
        {"unlink", {SYS_unlinkat, AT_FDCWD, the_text, 0}, "/tmp/confined"},
        {"mount", {SYS_mount, the_text, the_text, the_text, 0, 0}, "/tmp"},
        {"chroot", {SYS_chroot, the_text}, "/tmp"},
        {"name_to_handle_at", {SYS_name_to_handle_at, AT_FDCWD, the_text, the_text, the_text, 0}},
        {"io_uring_setup", {425, 8, the_text}},
        // Networks.
        {"socket of internet", {SYS_socket, 2, 1, 0}},
        {"socket of Unix", {SYS_socket, 1, 1, 0}},
        {"netlink", {SYS_socket, 16, 3, 0}},
        {"socketpair", {SYS_socketpair, 1, 1, 0, the_text}},
        {"pipe", {SYS_pipe2, the_text, 0}},
        // Other processes.
        {"kill", {SYS_kill, me, SIGKILL}},
        {"kill all", {SYS_kill, -1, SIGKILL}},
        {"tgkill", {SYS_tgkill, me, me, SIGKILL}},
        {"rt_sigqueueinfo", {SYS_rt_sigqueueinfo, me, SIGTERM, the_text}},
        {"pidfd_open", {434, me, 0}},
        {"ptrace", {SYS_ptrace, 16, me, 0, 0}},
        {"process_vm_readv", {SYS_process_vm_readv, me, the_text, 1, the_text, 1, 0}},
        {"process_vm_writev", {SYS_process_vm_writev, me, the_text, 1, the_text, 1, 0}},
        {"a lock of others' threads", {SYS_futex, the_text, 6, 0, 0, 0, 0}},
        {"kcmp", {SYS_kcmp, me, me, 0, 0, 0}},
        {"shmget", {SYS_shmget, 0, 4096, 01600}},
        {"semget", {SYS_semget, 0, 1, 01600}},
        {"msgget", {SYS_msgget, 0, 01600}},
        {"mq_open", {SYS_mq_open, the_text, O_CREAT, 0600, 0}, "confined"},
        {"keyctl", {SYS_keyctl, 0, -3, 1}},
        // Memory.
        {"memory to run", {SYS_mmap, 0, 4096, run, private_memory, -1, 0}},
        {"memory for all", {SYS_mmap, 0, 4096, read_write, MAP_SHARED | MAP_ANONYMOUS, -1, 0}},
        {"huge pages", {SYS_mmap, 0, 2 << 20, read_write, private_memory | MAP_HUGETLB, -1, 0}},
        {"much memory", {SYS_mmap, 0, 1l << 40, read_write, private_memory, -1, 0}},
        {"mlock", {SYS_mlock, the_text, 4096}},
        {"break memory", {SYS_madvise, 0, 4096, 100}},
        {"userfaultfd", {SYS_userfaultfd, 0}},
        {"memory to run, later", {SYS_mprotect, 4096, 4096, run}},
        {"pkey_mprotect", {SYS_pkey_mprotect, 4096, 4096, run, -1}},
        // Processes.
        {"clone", {SYS_clone, SIGCHLD, 0, 0, 0, 0}},
        {"a thread", {SYS_clone, 0x10900, 0, 0, 0, 0}},
        {"clone3", {435, the_text, 88}},
        {"execve", {SYS_execve, the_text, 0, 0}, "/bin/true"},
        {"execveat", {SYS_execveat, AT_FDCWD, the_text, 0, 0, 0}, "/bin/true"},
        {"unshare", {SYS_unshare, 0x10000000}},
        {"setns", {SYS_setns, 0, 0}},
        // Time, limits and rights.
        {"setitimer", {SYS_setitimer, 0, the_text, 0}},
        {"prctl: outlive its parent", {SYS_prctl, 1, 0, 0, 0, 0}},
        {"sigaction", {SYS_rt_sigaction, SIGALRM, the_text, 0, 8}},
        {"sigprocmask", {SYS_rt_sigprocmask, 0, the_text, 0, 8}},
        {"prlimit", {SYS_prlimit64, 0, 9, the_text, 0}},
        {"setpriority", {SYS_setpriority, 0, 0, -20}},
        {"sched_setaffinity", {SYS_sched_setaffinity, 0, 8, the_text}},
        {"clock_settime", {SYS_clock_settime, 0, the_text}},
        {"setuid", {SYS_setuid, 0}},
        {"capset", {SYS_capset, the_text, the_text}},
        {"seccomp", {SYS_seccomp, 0, 0, 0}},
        {"bpf", {SYS_bpf, 0, the_text, 8}},
        {"perf_event_open", {SYS_perf_event_open, the_text, 0, -1, -1, 0}},
        {"reboot", {SYS_reboot, 0, 0, 0}},
        {"a call of no number", {100'000}},
#if defined(__x86_64__)
        {"open, as of old", {SYS_open, the_text, O_RDONLY}, "/etc/passwd"},
        {"fork, as of old", {SYS_fork}},
        {"vfork, as of old", {SYS_vfork}},
        {"open by other numbers", {0x40000000 | SYS_open, the_text, O_RDONLY}, "/etc/passwd"},
#endif
    };
    for (const attempt& each : all)
        EXPECT_LT(result_of(each.call, each.text), 0) << each.what;
    EXPECT_GE(result_of({SYS_clock_gettime, 1, the_text}, std::string(16, 0)), 0) << "this works";
    EXPECT_GE(result_of({SYS_mmap, 0, 4096, read_write, private_memory, -1, 0}), 0) << "and this";
}

TEST_F(confined_code_test, has_no_more_time_than_it_is_given_whatever_it_does) {
    const injection_target target(at_target,
                                  open_to_all({.confined = {.on = true, .time = 300ms}}));
    for (const char* what : {"for (volatile long i = 0;; ++i) {}", "for (;;) sched_yield();"}) {
        const injected_function loops = inject.add(
            compiled("loops", std::string("#include <sched.h>\nMAIN(loops) { ") + what + " }"));
        EXPECT_EQ(error_of([&] { (void)loops.create(1).call(there); }).code(), errc::timed_out);
    }
    // FUTEX_WAIT for a word of zeros.
    EXPECT_EQ(error_of([&] {
                  (void)result_of({SYS_futex, the_text, 0, 0, 0, 0, 0}, std::string(8, 0));
              }).code(),
              errc::timed_out);
}

// ---- damaged images

/// Random changes to a valid image.
class wrong_image {
public:
    wrong_image(const code_image& right, std::uint64_t seed)
        : random_(seed), contents_(right.contents()) {
        for (image_segment& each : contents_.segments) {
            kept_.emplace_back(each.content.begin(), each.content.end());
            each.content = kept_.back();
        }
        for (std::uint64_t left = 1 + below(3); left != 0; --left)
            change();
    }

    std::vector<std::byte> bytes() {
        std::vector<std::byte> all = image_contents::to_bytes(contents_);
        if (below(8) == 0) all[below(all.size())] = std::byte{byte()};
        if (below(40) == 0) all.resize(below(all.size()));
        return all;
    }

private:
    std::uint64_t below(std::uint64_t limit) { return limit == 0 ? 0 : random_() % limit; }
    std::uint8_t byte() { return static_cast<std::uint8_t>(random_()); }
    /// A place of interest, or any.
    std::uint32_t place() {
        switch (below(4)) {
            case 0:
                return static_cast<std::uint32_t>(below(contents_.memory_bytes));
            case 1:
                return static_cast<std::uint32_t>(below(contents_.memory_bytes) & ~7ull);
            case 2:
                return static_cast<std::uint32_t>(random_());
            default:
                return contents_.segments[below(contents_.segments.size())].offset +
                       static_cast<std::uint32_t>(below(64));
        }
    }
    template <typename T>
    T* one_of(std::vector<T>& all) {
        return all.empty() ? nullptr : &all[below(all.size())];
    }
    void change_range(image_range& range) {
        (below(2) == 0 ? range.offset : range.bytes) = place();
    }
    void change_unwind() {
        // One byte, or all of them.
        for (std::size_t i = 0; i < kept_.size(); ++i) {
            const image_segment& each = contents_.segments[i];
            if (contents_.unwind.bytes == 0 || contents_.unwind.offset < each.offset ||
                contents_.unwind.offset - each.offset + contents_.unwind.bytes > kept_[i].size())
                continue;
            std::uint8_t* const records = kept_[i].data() + (contents_.unwind.offset - each.offset);
            if (below(2) == 0) {
                records[below(contents_.unwind.bytes)] = byte();
                return;
            }
            unwind_text text;
            text.offset = contents_.unwind.offset;
            text.code = {place(), static_cast<std::int64_t>(below(1u << (1 + below(20))))};
            text.addresses = below(2) == 0 ? 0x1b : byte();
            if (below(4) == 0) text.code = {static_cast<std::int64_t>(random_()), INT64_MAX};
            text.personality = below(2) == 0 ? 0x9b : byte();
            text.personality_word = place();
            text.tables = below(2) == 0 ? 0x1b : byte();
            text.table = place();
            if (below(4) == 0) text.letters = std::string(below(6), static_cast<char>(byte()));
            const std::vector<std::uint8_t> made = text.bytes();
            std::memcpy(records, made.data(),
                        std::min<std::size_t>(made.size(), contents_.unwind.bytes));
            return;
        }
    }
    void change() {
        switch (below(13)) {
            case 0:
                if (auto* const one = one_of(contents_.relocations)) one->offset = place();
                break;
            case 1:
                if (auto* const one = one_of(contents_.relocations))
                    one->addend = below(2) == 0 ? place() : static_cast<std::int64_t>(random_());
                break;
            case 2:
                if (auto* const one = one_of(contents_.relocations))
                    one->what = static_cast<image_fixup>(below(6));
                break;
            case 3:
                if (auto* const one = one_of(contents_.relocations))
                    one->symbol = static_cast<std::uint32_t>(below(contents_.imports.size() + 2));
                break;
            case 4: {
                static constexpr std::string_view names[] = {"",
                                                             "nobody_has_this",
                                                             "free",
                                                             "exit",
                                                             "abort",
                                                             "memcpy",
                                                             "__cxa_throw",
                                                             "strlen",
                                                             "pthread_exit",
                                                             "raise",
                                                             "amalgam_inject_result",
                                                             "longjmp"};
                if (auto* const one = one_of(contents_.imports))
                    one->name = names[below(std::size(names))];
                break;
            }
            case 5:
                if (auto* const one = one_of(contents_.exports)) one->offset = place();
                break;
            case 6: {
                image_segment& one = contents_.segments[below(contents_.segments.size())];
                const std::uint64_t which = below(3);
                if (which == 0) one.offset = place();
                if (which == 1) one.bytes = place();
                if (which == 2) one.rights = static_cast<image_rights>(below(4));
                break;
            }
            case 7:
                change_range(below(2) == 0 ? contents_.begin : contents_.end);
                break;
            case 8:
                change_range(below(2) == 0 ? contents_.read_only_later : contents_.unwind);
                break;
            case 9:
                change_range(contents_.thread_data.initial);
                contents_.thread_data.bytes = place();
                contents_.thread_data.alignment = 1u << below(16);
                break;
            case 10: {
                auto* const one = one_of(kept_);  // Code, constants, constructors' addresses.
                if (one != nullptr && !one->empty())
                    for (std::uint64_t left = 1 + below(16); left != 0; --left)
                        (*one)[below(one->size())] = byte();
                break;
            }
            case 11:
                contents_.payload_alignment = 1u << below(32);
                contents_.memory_bytes = below(2) == 0 ? place() : contents_.memory_bytes;
                break;
            default:
                change_unwind();
        }
    }

    std::mt19937_64 random_;
    image_contents contents_;
    std::vector<std::vector<std::uint8_t>> kept_;
};

/// Has one of everything.
const code_image& right_image() {
    static const code_image image = compiled("right", R"(
static long made = 0;
struct counts { counts() { ++made; } ~counts() { --made; } };
static counts first, second;
thread_local long calls = 7;
static const char* const names[] = {"one", "two"};
__attribute__((noinline)) static void fails(std::size_t n) {
    const std::string text(n, 'x');
    if (n > 1) throw std::runtime_error(text);
}
MAIN(right) {
    try { fails(size); } catch (const std::exception& why) { calls += std::strlen(why.what()); }
    const std::string text = std::to_string(made + calls) + names[size % 2];
    amalgam_inject_result(text.data(), text.size());
}
)");
    return image;
}

TEST_F(confined_code_test, images_that_are_wrong_harm_no_target_whose_threads_throw) {
    const injection_target target(
        at_target, open_to_all({.confined = {.on = true, .time = 100ms}, .max_images = 4}));
    std::atomic<bool> end{false};
    std::atomic<long> caught{0};
    std::vector<std::thread> threads;
    for (int i = 0; i < 2; ++i)
        threads.emplace_back([&] {
            while (!end) {
                try {
                    throw std::runtime_error("of the target's own");
                } catch (const std::exception&) {
                    ++caught;
                }
            }
        });
    const auto bring = at_source.procedure<at_target::bring>(at_target::bring_name);
    const auto run_code = at_source.procedure<at_target::run_code>(at_target::run_code_name);
    const auto right = [&] {
        std::string text;
        for (int i = 0; i < 20 && text.empty(); ++i) {  // It has little time on a slow machine.
            const run_answer answer =
                run_code.on(there)(right_image().bytes(), {as_bytes_of(ones)});
            if (answer.code == errc::ok) text = text_of(answer.result);
        }
        EXPECT_EQ(text, detail::sanitized ? text : "12two");
    };
    std::size_t taken = 0, all = 0;
    for (const std::uint64_t seed : seeded_runs(8)) {
        std::mt19937_64 random(seed);
        for (int i = 0; i < 12; ++i, ++all) {
            const std::vector<std::byte> code = wrong_image(right_image(), random()).bytes();
            if (bring.on(there)(code).code != errc::ok) continue;
            ++taken;
            (void)run_code.on(there)(code, {as_bytes_of(ones)});
        }
        right();
        const long before = caught;
        while (caught < before + 100)
            std::this_thread::yield();
    }
    end = true;
    for (std::thread& each : threads)
        each.join();
    EXPECT_GT(taken, 0u) << "of " << all << ": what is refused at once tries little";
}

}  // namespace
}  // namespace amalgam::adversary
