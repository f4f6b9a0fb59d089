const root = document.documentElement, button = document.getElementById("theme");
const set = (theme) => { root.dataset.theme = theme; button.textContent = theme === "dark" ? "light" : "dark"; };
set(matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
button.onclick = () => set(root.dataset.theme === "dark" ? "light" : "dark");
