#include "inject/link/linked_image.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include <dlfcn.h>
#include <fmt/format.h>
#include <linux/membarrier.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <amalgam/core/status.hpp>

#include "inject/image/contents.hpp"
#include "inject/link/image_thread_blocks.hpp"
#include "inject/link/image_threads.hpp"

// libgcc's registration of unwind records for code without a loader.
extern "C" void __register_frame(void* records);
extern "C" void __deregister_frame(void* records);

namespace amalgam::detail {

namespace {

std::size_t page_bytes() {
    static const auto bytes = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    return bytes;
}

#if defined(__aarch64__)
constexpr const char* loader = "ld-linux-aarch64.so.1";  // Has __stack_chk_guard.
#else
constexpr const char* loader = "ld-linux-x86-64.so.2";
#endif

/// Other threads may have fetched what was at that address before: they must not go on with it.
/// __builtin___clear_cache() sees to the caches and to the calling thread. x86 does it by itself.
void discard_fetched_instructions() noexcept {
#if defined(__aarch64__)
    const auto call = [](int command) { return ::syscall(SYS_membarrier, command, 0, 0) == 0; };
    if (call(MEMBARRIER_CMD_PRIVATE_EXPEDITED_SYNC_CORE)) return;
    if (call(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED_SYNC_CORE))
        call(MEMBARRIER_CMD_PRIVATE_EXPEDITED_SYNC_CORE);
#endif
}

std::size_t page_floor(std::size_t offset) {
    return offset / page_bytes() * page_bytes();
}
std::size_t page_ceiling(std::size_t offset) {
    return page_floor(offset + page_bytes() - 1);
}

/// All linked images, by end address: callbacks carry only an address.
struct linked_images {
    std::mutex lock;
    std::map<const std::byte*, linked_image*> by_end;
};

linked_images& linked() {
    static linked_images* const all = new linked_images;
    return *all;
}

}  // namespace

void* runtime_symbol(std::string_view name) {
    // Those loaded in this process; a missing one exports nothing.
    static const std::array<void*, 5> libraries = [] {
        std::array<void*, 5> all{};
        std::size_t next = 0;
        for (const char* each :
             {"libstdc++.so.6", "libc.so.6", "libm.so.6", "libgcc_s.so.1", loader})
            all[next++] = ::dlopen(each, RTLD_LAZY | RTLD_NOLOAD);
        return all;
    }();
    const std::string text(name);
    for (void* const each : libraries) {
        if (each == nullptr) continue;
        void* const found = ::dlsym(each, text.c_str());
        if (found == nullptr) continue;
        // The program may have replaced it, as with an allocator.
        void* const used = ::dlsym(RTLD_DEFAULT, text.c_str());
        return used != nullptr ? used : found;
    }
    return nullptr;
}

// ---- memory

linked_image::mapping::mapping(std::size_t bytes) : bytes_(page_ceiling(bytes)) {
    void* const got =
        ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (got == MAP_FAILED)
        throw error(errc::no_memory, fmt::format("cannot allocate {} bytes for an image", bytes_));
    start_ = static_cast<std::byte*>(got);
}

linked_image::mapping::~mapping() {
    ::munmap(start_, bytes_);
}

bool linked_image::mapping::holds(const void* address) const noexcept {
    const auto* const at = static_cast<const std::byte*>(address);
    return at >= start_ && at < start_ + bytes_;
}

/// Functions to call before its memory is freed.
struct linked_image::exits {
    std::mutex lock;
    std::vector<last_call> calls;
};

// ---- linking

linked_image::linked_image(const code_image& image, const image_symbols& symbols)
    : linked_image(image, symbols, not_started()) {
    start();
}

linked_image::linked_image(const code_image& image, const image_symbols& symbols, not_started)
    : image_(image), memory_(image.contents().memory_bytes), exits_(std::make_unique<exits>()) {
    const image_contents& what = image_.contents();
#ifdef _LIBCPP_VERSION
    // Images have libstdc++'s names, and LLVM's unwinder takes no table of frames as GCC's does.
    throw error(
        errc::unsupported,
        fmt::format("the image {} cannot be linked in this process, whose Amalgam was built with "
                    "libc++; build it with libstdc++ to run code that is sent",
                    what.name));
#endif
    if (what.architecture != this_architecture())
        throw error(errc::unsupported,
                    fmt::format("the image {} is for {}, but this process runs on {}", what.name,
                                name(what.architecture), name(this_architecture())));
    copy_segments();
    if (what.thread_data.bytes != 0)
        thread_data_ = std::make_unique<image_thread_blocks>(
            what.thread_data, memory_.at(what.thread_data.initial.offset));
    relocate(symbols);
    read_functions();
    protect();
    {
        linked_images& all = linked();
        const std::lock_guard one(all.lock);
        all.by_end.emplace(memory_.at(what.memory_bytes), this);
    }
}

void linked_image::start() {
    const image_range unwind = image_.contents().unwind;
    if (unwind.bytes > 4) {
        ::__register_frame(memory_.at(unwind.offset));
        unwinds_ = true;
    }
    for (void (*const each)() : first_)
        each();
    started_ = true;
}

linked_image::~linked_image() {
    if (started_) std::for_each(last_.rbegin(), last_.rend(), [](void (*each)()) { each(); });
    for (;;) {
        last_call next{};
        {
            const std::lock_guard one(exits_->lock);
            if (exits_->calls.empty()) break;
            next = exits_->calls.back();
            exits_->calls.pop_back();
        }
        next.function(next.argument);
    }
    if (unwinds_) ::__deregister_frame(memory_.at(image_.contents().unwind.offset));
    linked_images& all = linked();
    const std::lock_guard one(all.lock);
    all.by_end.erase(memory_.at(image_.contents().memory_bytes));
}

void linked_image::copy_segments() {
    std::size_t next = 0;
    for (const image_segment& each : image_.contents().segments) {
        if (page_floor(each.offset) < next)
            throw error(
                errc::unsupported,
                fmt::format("the image {} is for pages smaller than the {} bytes of this machine",
                            image_.name(), page_bytes()));
        next = page_ceiling(std::size_t{each.offset} + each.bytes);
        if (!each.content.empty())
            std::memcpy(memory_.at(each.offset), each.content.data(), each.content.size());
    }
}

void linked_image::relocate(const image_symbols& symbols) {
    const image_contents& what = image_.contents();
    // The process's own versions do not know this memory.
    const auto own = [](std::string_view name) -> void* {
        if (name == "__tls_get_addr") return reinterpret_cast<void*>(&image_thread_blocks::address);
        if (name == "__cxa_atexit") return reinterpret_cast<void*>(&linked_image::at_exit);
        return thread_starting_symbol(name);
    };
    std::vector<std::uintptr_t> imports;
    std::string missing;
    for (const image_import& each : what.imports) {
        void* found = own(each.name);
        if (found == nullptr) found = symbols(each.name);
        if (found == nullptr && !each.weak)
            missing += fmt::format("{}{}", missing.empty() ? "" : ", ", each.name);
        imports.push_back(reinterpret_cast<std::uintptr_t>(found));
    }
    if (!missing.empty())
        throw error(errc::not_found,
                    fmt::format("the image {} needs symbols that this process does not export: {}",
                                what.name, missing));
    const auto base = reinterpret_cast<std::uintptr_t>(memory_.at(0));
    for (const image_relocation& each : what.relocations) {
        std::uintptr_t value = static_cast<std::uintptr_t>(each.addend);
        switch (each.what) {
            case image_fixup::relative:
                value += base;
                break;
            case image_fixup::import:
                value += imports[each.symbol];
                break;
            case image_fixup::thread_module:
                value = thread_data_ != nullptr ? thread_data_->module() : 0;
                break;
            case image_fixup::thread_offset:
                break;
        }
        std::memcpy(memory_.at(each.offset), &value, sizeof(value));
    }
}

void linked_image::protect() {
    const image_contents& what = image_.contents();
    const auto set = [&](std::size_t from, std::size_t to, int rights) {
        if (from < to && ::mprotect(memory_.at(from), to - from, rights) != 0)
            throw error(errc::denied,
                        fmt::format("cannot make the memory of the image {} {}", what.name,
                                    (rights & PROT_EXEC) != 0 ? "executable" : "read-only"));
    };
    for (const image_segment& each : what.segments) {
        const std::size_t from = page_floor(each.offset);
        const std::size_t to = page_ceiling(std::size_t{each.offset} + each.bytes);
        if (each.rights == image_rights::read) set(from, to, PROT_READ);
        if (each.rights == image_rights::read_execute) {
            auto* const start = reinterpret_cast<char*>(memory_.at(from));
            __builtin___clear_cache(start, start + (to - from));
            set(from, to, PROT_READ | PROT_EXEC);
        }
    }
    const image_range later = what.read_only_later;
    set(page_floor(later.offset), page_floor(std::size_t{later.offset} + later.bytes), PROT_READ);
    discard_fetched_instructions();
}

void linked_image::read_functions() {
    const image_contents& what = image_.contents();
    const auto runs = [&](std::uintptr_t address) {
        const auto offset = address - reinterpret_cast<std::uintptr_t>(memory_.at(0));
        return std::any_of(what.segments.begin(), what.segments.end(), [&](const auto& each) {
            return each.rights == image_rights::read_execute && offset >= each.offset &&
                   offset - each.offset < each.bytes;
        });
    };
    for (const auto& [where, into] :
         {std::pair{what.begin, &first_}, std::pair{what.end, &last_}}) {
        for (std::uint32_t at = 0; at < where.bytes; at += 8) {
            std::uintptr_t each = 0;
            std::memcpy(&each, memory_.at(where.offset + at), sizeof(each));
            if (!runs(each))
                throw error(
                    errc::invalid,
                    fmt::format("an init or fini function of the image {} is not in its own code",
                                what.name));
            into->push_back(reinterpret_cast<void (*)()>(each));
        }
    }
}

const linked_image* linked_image::at(const void* address) noexcept {
    linked_images& all = linked();
    const std::lock_guard one(all.lock);
    const auto at = all.by_end.upper_bound(static_cast<const std::byte*>(address));
    return at != all.by_end.end() && at->second->memory_.holds(address) ? at->second : nullptr;
}

void linked_image::kept_by(std::weak_ptr<const void> owner) {
    const std::lock_guard one(linked().lock);
    owner_ = std::move(owner);
}

linked_image::kept linked_image::kept_at(const void* address) {
    linked_images& all = linked();
    const std::lock_guard one(all.lock);
    const auto at = all.by_end.upper_bound(static_cast<const std::byte*>(address));
    if (at == all.by_end.end() || !at->second->memory_.holds(address)) return {};
    return {true, at->second->owner_.lock()};
}

std::unique_lock<std::mutex> linked_image::hold_all() {
    return std::unique_lock(linked().lock);
}

int linked_image::at_exit(void (*function)(void*), void* argument, void* of) {
    const linked_image* const image = at(of);
    if (image == nullptr) return -1;
    const std::lock_guard one(image->exits_->lock);
    image->exits_->calls.push_back({function, argument});
    return 0;
}

void* linked_image::find(std::string_view which) const noexcept {
    const image_export* const found = image_.contents().find(which);
    return found == nullptr ? nullptr : memory_.at(found->offset);
}

}  // namespace amalgam::detail
