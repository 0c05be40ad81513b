#pragma once

#include <string>
#include <utility>
#include <vector>

#include <amalgam/fabric/key_folder.hpp>

#include "temp_folder.hpp"

namespace amalgam::processes {

/// URIs of a test's ports over one transport, with keys that an authority of the test certified. A
/// transport that does not encrypt needs none.
class lab_keys {
public:
    /// `scheme` is "tcp+tls", for example.
    explicit lab_keys(std::string scheme) : scheme_(std::move(scheme)) {
        if (encrypts()) make_key(folder("lab"), {.name = "lab", .authority = true});
    }

    bool encrypts() const { return scheme_.ends_with("+tls"); }
    /// Makes a key for a port that others reach at `hosts`.
    void add(const std::string& name, const std::vector<std::string>& hosts,
             const std::string& signed_by = "lab") const {
        if (!encrypts()) return;
        make_key(folder(name), {.name = name, .hosts = hosts});
        sign_key(folder(name), folder(signed_by));
    }
    std::string folder(const std::string& name) const { return folder_.with(name); }
    /// Of a port that listens at `where` and has the key `name`; without `where` it only calls.
    std::string uri(const std::string& where, const std::string& name) const {
        return address(where) + (encrypts() ? "?credentials=" + folder(name) : "");
    }
    /// What others look up.
    std::string address(const std::string& where) const { return scheme_ + "://" + where; }

private:
    std::string scheme_;
    temp_folder folder_;
};

}  // namespace amalgam::processes
