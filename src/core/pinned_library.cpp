#include <atomic>

#include <dlfcn.h>
#include <link.h>

#include <amalgam/core/detail/pinned_library.hpp>

namespace amalgam::detail {

void pin_library() noexcept {
    // No local static: a child of fork() would wait for ever for a thread of its parent that had
    // begun it. To do it twice harms nobody.
    static constinit std::atomic<bool> pinned{false};
    if (pinned.load(std::memory_order_relaxed)) return;
    Dl_info here{};
    link_map* object = nullptr;
    // The program itself has no name there, and would be searched for in the folders of libraries.
    if (::dladdr1(reinterpret_cast<void*>(&pin_library), &here, reinterpret_cast<void**>(&object),
                  RTLD_DL_LINKMAP) != 0 &&
        object->l_name != nullptr && *object->l_name != '\0') {
        // dlclose() drops the reference again; the NODELETE mark stays.
        void* const self = ::dlopen(object->l_name, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
        if (self != nullptr) ::dlclose(self);
    }
    pinned.store(true, std::memory_order_relaxed);
}

}  // namespace amalgam::detail
