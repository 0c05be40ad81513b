// Two ULTs that park, for testing the gdb script: gdb_test.cmake stops in everything_is_parked().

#include <amalgam/tasks/event.hpp>
#include <amalgam/tasks/mutex.hpp>
#include <amalgam/tasks/ult.hpp>

extern "C" [[gnu::noinline]] void everything_is_parked() {
    asm volatile("");
}

#if defined(__GNUC__) && !defined(__clang__)
[[gnu::noipa]]
#endif
[[gnu::noinline]] void
wait_for_the_event(amalgam::event& what) {
    what.wait();
    asm volatile("");  // no tail call
}

int main() {
    amalgam::execution_stream stream(amalgam::execution_stream_options{.driven = true});
    amalgam::event happens;
    amalgam::mutex guard;
    guard.lock();
    amalgam::ult first =
        spawn(stream, [&] { wait_for_the_event(happens); }, {.name = "waits-for-event"});
    amalgam::ult second = spawn(stream,
                                [&] {
                                    guard.lock();
                                    guard.unlock();
                                },
                                {.name = "wants-mutex"});
    stream.run_ready();
    everything_is_parked();
    happens.set();
    guard.unlock();
    stream.run_ready();
    first.join();
    second.join();
}
