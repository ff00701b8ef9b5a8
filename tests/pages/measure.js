// The faults of the page as it is shown now: a list of [kind of fault, where].
(() => {
    const LONGEST = 24; // a word of more characters may be broken
    const SMALLEST_PX = 9;
    const faults = [];
    const shown = (element) => element.checkVisibility({ visibilityProperty: true });
    const said = (text) => text.trim().replace(/\s+/g, " ").slice(0, 60);

    // Words, each by the boxes that its letters are in.
    const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    const range = document.createRange();
    while (texts.nextNode()) {
        const node = texts.currentNode;
        const parent = node.parentElement;
        if (parent.closest("style, title, defs") || !shown(parent)) continue;
        for (const word of node.data.matchAll(/\S+/g)) {
            range.setStart(node, word.index);
            range.setEnd(node, word.index + word[0].length);
            const boxes = [...range.getClientRects()].filter((box) => box.width > 0);
            if (boxes.length === 0) continue;
            // Of a word that says itself where it may be broken this is a piece.
            const whole = parent.querySelector(":scope > wbr") ? said(parent.textContent) : word[0];
            if (whole.length <= LONGEST && new Set(boxes.map((box) => Math.round(box.top))).size > 1) {
                faults.push(["cut word", word[0]]);
            }
            // Not within what hides or scrolls what is too wide for it, nor within the page.
            for (let box = parent; box; box = box.parentElement) {
                const style = getComputedStyle(box);
                if (box !== document.body && box !== document.documentElement && style.overflowX === "visible") continue;
                if (box.namespaceURI.endsWith("svg")) continue;
                const edge = box.getBoundingClientRect();
                const right = box === document.documentElement ? innerWidth : edge.right;
                if (boxes.some((one) => one.right > right + 1 || one.left < edge.left - 1)) {
                    faults.push(["clipped word", word[0]]);
                    break;
                }
            }
        }
        if (said(node.data) === "") continue;
        // As large as it is seen: a drawing that is made smaller makes its words smaller.
        const svg = node.parentElement.closest("svg");
        const scale = svg && svg.viewBox.baseVal?.width ? svg.getBoundingClientRect().width / svg.viewBox.baseVal.width : 1;
        if (parseFloat(getComputedStyle(parent).fontSize) * scale < SMALLEST_PX) {
            faults.push(["small word", said(node.data)]);
        }
    }

    // Labels of charts, each over another.
    for (const chart of document.querySelectorAll(".plot, figure > svg")) {
        const labels = [...chart.querySelectorAll("text, span, b")].filter((label) => shown(label) && said(label.textContent));
        const boxes = labels.map((label) => label.getBoundingClientRect());
        for (let a = 0; a < boxes.length; a += 1) {
            for (let b = a + 1; b < boxes.length; b += 1) {
                const [one, other] = [boxes[a], boxes[b]];
                const apart = one.right <= other.left || other.right <= one.left || one.bottom <= other.top + 2 || other.bottom <= one.top + 2;
                if (!apart) faults.push(["labels upon each other", `${said(labels[a].textContent)} and ${said(labels[b].textContent)}`]);
            }
        }
    }

    // Bars of different series that look alike without colour.
    for (const figure of document.querySelectorAll("figure")) {
        const [swatches, bars] = ["figcaption rect", ":scope > div rect, :scope > svg rect"].map((of) => [...figure.querySelectorAll(of)]);
        const patterns = swatches.map((rect) => rect.getAttribute("fill").match(/#(\w+)-/)?.[1] ?? "solid");
        if (bars.length > 0 && new Set(patterns).size < patterns.length) {
            faults.push(["series told apart by colour alone", said(figure.querySelector("figcaption").textContent)]);
        }
    }

    // Links that lead nowhere.
    for (const link of document.querySelectorAll("a[href]")) {
        const to = decodeURIComponent(link.getAttribute("href"));
        if (!to.startsWith("#") || document.getElementById(to.slice(1)) === null) faults.push(["dead link", to]);
    }

    const { scrollWidth, clientWidth } = document.documentElement;
    if (scrollWidth > clientWidth) faults.push(["page wider than the screen", `${scrollWidth} of ${clientWidth}`]);
    return faults;
})();
