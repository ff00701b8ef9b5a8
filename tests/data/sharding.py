"""The vectors of docs/sharding.md, by an implementation of its own: python3 sharding.py > sharding.json"""

import hashlib
import json

NAMES = [["a"], ["eu-1", "eu-2"], ["eu-1", "eu-2", "eu-3"], ["a", "aa", "b", "z_9.x", "n" * 63]]
KEYS = ["", "a", "user:42", "card:9f3c", "203.0.113.9", "жук", "键", "🙂", " ", "k" * 255]


def weight(name, key):
    name = name.encode("ascii")
    return hashlib.sha256(bytes([len(name)]) + name + key.encode("utf-8")).digest()[:8].hex()


vectors = []
for names in NAMES:
    for key in KEYS:
        weights = {name: weight(name, key) for name in names}
        highest = max(weights.values())
        owner = min(name for name in names if weights[name] == highest)
        vectors.append({"key": key, "weights": weights, "owner": owner})
print("[\n" + ",\n".join("  " + json.dumps(vector) for vector in vectors) + "\n]")
