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

/// The address of what an image imports; null: there is no such thing.
using image_symbols = std::function<void*(std::string_view name)>;

/// What the C and C++ runtimes have, if this process has them.
void* runtime_symbol(std::string_view name);

/// An image in memory, linked: its functions can be called. No memory of it can be written and run
/// at the same time, ever.
///
/// Owner:   its memory and its static objects, which are destroyed with it; nothing of it may run
///          or be used then, nor an exception that it threw.
/// Threads: any.
/// Failure: the constructor throws error{unsupported} for another architecture or page size,
///          {not_found} for imports that there are not, {no_memory}, and what its static objects
///          throw.
class linked_image {
public:
    linked_image(const code_image& image, const image_symbols& symbols);
    /// Bytes in memory, no more: no code of it has run, and nothing in this process but its owner
    /// knows of it.
    struct not_started {};
    linked_image(const code_image& image, const image_symbols& symbols, not_started);
    linked_image(const linked_image&) = delete;
    linked_image& operator=(const linked_image&) = delete;
    ~linked_image();

    /// Once, where it has not started: tells who unwinds of it, and makes its static objects. In
    /// the process that is to run it. Throws what they throw.
    void start();
    /// What keeps it, while threads that it started run; without, it can start none.
    void kept_by(std::weak_ptr<const void> owner);
    /// A function or object that it exports; null: none has that name.
    void* find(std::string_view name) const noexcept;
    const code_image& image() const noexcept { return image_; }

    /// Who has this address: an image, and what keeps it, if that is there.
    struct kept {
        bool known = false;
        std::shared_ptr<const void> image{};
    };
    static kept kept_at(const void* address);
    /// Of all images, while a process is forked: a lock that a thread has there never opens.
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
    /// The image that has this address; null: none has. It is there as long as its code runs.
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
