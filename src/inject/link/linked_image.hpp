#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <string_view>
#include <vector>

#include <amalgam/inject/code_image.hpp>

namespace amalgam::detail {

class image_thread_blocks;

/// The address of an imported symbol; null if there is none.
using image_symbols = std::function<void*(std::string_view name)>;

/// Symbols of the C and C++ runtimes, if this process has them.
void* runtime_symbol(std::string_view name);

/// An image in memory, linked: its functions can be called. Its memory is never writable and
/// executable at the same time.
///
/// Owner:   its memory and its static objects, which are destroyed with it. By then nothing of it
///          may run or be in use, nor any exception that it threw.
/// Threads: any.
/// Failure: the constructor throws error{unsupported} for another architecture or page size,
///          {not_found} for missing imports, {no_memory}, and what its static initializers throw.
class linked_image {
public:
    linked_image(const code_image& image, const image_symbols& symbols);
    /// Only loads it: none of its code has run, and nothing in this process but its owner knows of
    /// it.
    struct not_started {};
    linked_image(const code_image& image, const image_symbols& symbols, not_started);
    linked_image(const linked_image&) = delete;
    linked_image& operator=(const linked_image&) = delete;
    ~linked_image();

    /// Call once, if not started yet: registers its unwind records, and constructs its static
    /// objects. In the process that is to run it. Throws what they throw.
    void start();
    /// Keeps `owner` alive while threads started by the image run; without one it cannot start
    /// threads.
    void kept_by(std::weak_ptr<const void> owner);
    /// An exported function or object; null if there is no such name.
    void* find(std::string_view name) const noexcept;
    const code_image& image() const noexcept { return image_; }

    /// The image at an address, and its owner if set.
    struct kept {
        bool known = false;
        std::shared_ptr<const void> image{};
    };
    static kept kept_at(const void* address);
    /// Locks all images during a fork: a lock held by another thread would never be released in the
    /// child.
    static std::unique_lock<std::mutex> hold_all();

private:
    struct last_call {
        void (*function)(void*);
        void* argument;
    };
    class mapping {
    public:
        explicit mapping(std::size_t bytes);
        mapping(const mapping&) = delete;
        mapping& operator=(const mapping&) = delete;
        ~mapping();
        std::byte* at(std::size_t offset) const noexcept { return start_ + offset; }
        bool holds(const void* address) const noexcept;

    private:
        std::byte* start_;
        std::size_t bytes_;
    };

    void copy_segments();
    void relocate(const image_symbols& symbols);
    void protect();
    void read_functions();
    /// The image at this address; null if none. It lives while its code runs.
    static const linked_image* at(const void* address) noexcept;
    static int at_exit(void (*function)(void*), void* argument, void* of);

    const code_image image_;
    const mapping memory_;
    std::unique_ptr<image_thread_blocks> thread_data_;
    std::weak_ptr<const void> owner_;
    bool unwinds_ = false;
    bool started_ = false;
    std::vector<void (*)()> first_, last_;
    struct exits;
    std::unique_ptr<exits> exits_;
};

}  // namespace amalgam::detail
