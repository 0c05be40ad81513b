#include "inject/link/image_threads.hpp"

#include <cerrno>
#include <memory>
#include <new>
#include <system_error>
#include <thread>
#include <utility>

#include <pthread.h>
#include <threads.h>

#include "inject/link/linked_image.hpp"

#ifdef __GLIBCXX__
// How std::thread starts a thread; templates in images call this directly. Those of libc++ call
// pthread_create().
extern "C" void
_ZNSt6thread15_M_start_threadESt10unique_ptrINS_6_StateESt14default_deleteIS1_EEPFvvE(
    std::thread* self, std::unique_ptr<std::thread::_State>* work, void (*depend)());
#endif

namespace amalgam::detail {

namespace {

template <typename Function, typename Argument>
struct kept_call {
    std::shared_ptr<const void> image;  // Destroyed last: its code may be unloaded with it.
    Function function;
    Argument argument;
};

template <typename Call>
auto run_kept(void* context) {
    const std::unique_ptr<Call> call(static_cast<Call*>(context));
    return call->function(call->argument);
}

/// The image that owns the thread: the one with its code, or else the one that starts it.
linked_image::kept kept_for(const void* code, const void* asked_at) {
    auto found = linked_image::kept_at(code);
    return found.known ? found : linked_image::kept_at(asked_at);
}

/// Starts `function` by `start`, and keeps the image until it returns.
template <typename Function, typename Start>
int start_kept(linked_image::kept image, int no_room, Function function, void* argument,
               Start start) {
    using call = kept_call<Function, void*>;
    if (!image.known) return start(function, argument);
    if (image.image == nullptr) return no_room;
    std::unique_ptr<call> made(new (std::nothrow) call{std::move(image.image), function, argument});
    if (made == nullptr) return no_room;
    const int failed = start(run_kept<call>, made.get());
    if (failed == 0) (void)made.release();
    return failed;
}

int start_pthread(pthread_t* into, const pthread_attr_t* how, void* (*function)(void*),
                  void* argument) {
    auto image = kept_for(reinterpret_cast<void*>(function), __builtin_return_address(0));
    return start_kept(std::move(image), EAGAIN, function, argument, [&](auto what, void* with) {
        return ::pthread_create(into, how, what, with);
    });
}

int start_c_thread(thrd_t* into, thrd_start_t function, void* argument) {
    static_assert(thrd_success == 0);
    auto image = kept_for(reinterpret_cast<void*>(function), __builtin_return_address(0));
    return start_kept(std::move(image), thrd_nomem, function, argument,
                      [&](auto what, void* with) { return ::thrd_create(into, what, with); });
}

#ifdef __GLIBCXX__
struct kept_state final : std::thread::_State {
    kept_state(std::shared_ptr<const void> of, std::unique_ptr<std::thread::_State> inner)
        : image(std::move(of)), work(std::move(inner)) {}
    void _M_run() override { work->_M_run(); }

    const std::shared_ptr<const void> image;  // Outlives the work, whose destructor is image code.
    std::unique_ptr<std::thread::_State> work;
};

void start_cpp_thread(std::thread* self, std::unique_ptr<std::thread::_State>* work,
                      void (*depend)()) {
    // Its vtable is in the image.
    const void* const table = *reinterpret_cast<void* const*>(work->get());
    auto image = kept_for(table, __builtin_return_address(0));
    if (image.known && image.image == nullptr)
        throw std::system_error(EAGAIN, std::generic_category(), "this image cannot start threads");
    std::unique_ptr<std::thread::_State> kept =
        std::make_unique<kept_state>(std::move(image.image), std::move(*work));
    ::_ZNSt6thread15_M_start_threadESt10unique_ptrINS_6_StateESt14default_deleteIS1_EEPFvvE(
        self, &kept, depend);
}
#endif

}  // namespace

void* thread_starting_symbol(std::string_view name) {
    if (name == "pthread_create") return reinterpret_cast<void*>(&start_pthread);
    if (name == "thrd_create") return reinterpret_cast<void*>(&start_c_thread);
#ifdef __GLIBCXX__
    if (name ==
        "_ZNSt6thread15_M_start_threadESt10unique_ptrINS_6_StateESt14default_deleteIS1_EEPFvvE")
        return reinterpret_cast<void*>(&start_cpp_thread);
#endif
    return nullptr;
}

}  // namespace amalgam::detail
